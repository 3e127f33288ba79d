"""An environment in which KeOps compiles offline, from what is on a machine with torch and nvcc.

KeOps looks for libcuda, libnvrtc and libcudart as a compiler does, by names without a version, and for cuda.h and nvrtc.h in
one folder. Where torch came as a wheel the libraries have versioned names only, nvrtc.h is beside them, and what cuda_fp16.h
includes is with nvcc. So a folder of links is made, lib/ and include/, and named to the compiler, the loader and KeOps.
KeOps names the libraries before its source, where a linker that drops what nothing has asked for yet drops them: its
compiler is a script that names them again at the end.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch

LIBRARIES = ("libcuda", "libnvrtc", "libcudart")


def environment(folder: Path) -> dict[str, str]:
    """What to add to the environment of a process that imports pykeops."""
    lib, include = folder / "lib", folder / "include"
    lib.mkdir(parents=True, exist_ok=True)
    include.mkdir(exist_ok=True)
    for file in _libraries():
        _link(lib / file.name, file)
        name = file.name.partition(".so")[0]
        if name in LIBRARIES:
            _link(lib / f"{name}.so", file)
    for root in _roots():
        for file in (root / "include").glob("*"):
            _link(include / file.name, file)

    compiler = folder / "g++"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@" -Wl,--no-as-needed -lcuda -lnvrtc -lstdc++\n')
    compiler.chmod(0o755)

    def before(name: str) -> str:
        return os.pathsep.join(filter(None, [str(lib), os.environ.get(name, "")]))

    return {
        "CUDA_PATH": str(folder),
        "CUDA_HOME": str(folder),
        "CXX": str(compiler),
        "LIBRARY_PATH": before("LIBRARY_PATH"),
        "LD_LIBRARY_PATH": before("LD_LIBRARY_PATH"),
        "KEOPS_CACHE_FOLDER": str(folder / "cache"),
        "PYKEOPS_VERBOSE": "0",
    }


def _roots() -> Iterator[Path]:
    """Folders with lib and include: torch's own libraries first, so that no second version is loaded beside them."""
    yield from sorted((Path(torch.__file__).parents[1] / "nvidia").glob("*"))
    nvcc = shutil.which("nvcc")
    yield from (Path(nvcc).resolve().parents[1],) if nvcc else ()
    yield Path("/usr/local/cuda")


def _libraries() -> Iterator[Path]:
    """The driver's library, as this process has loaded it, and the files of the others."""
    maps = Path("/proc/self/maps").read_text() if torch.cuda.is_available() else ""
    yield from (Path(path) for path in sorted(set(re.findall(r"\S*/libcuda\.so\S*", maps))))
    for root in _roots():
        for folder in (root / "lib", root / "lib64"):
            for name in LIBRARIES[1:]:
                yield from sorted(folder.glob(f"{name}*.so*"))


def _link(link: Path, file: Path) -> None:
    if not link.is_symlink():
        link.symlink_to(file)
