"""The wheels and the sdist of this tree, and clean environments to install them in.

``python tests/install/packages.py``, or ``make install-test``, builds the wheels of the three packages. For every Python
from 3.11 on that this machine has it installs them into a clean venv, the library alone, then the words, then the
laboratory, and runs smoke.py after each. On the Python that runs it, it does so once more with the tests of each package.
It downloads what the wheels need.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).with_name("smoke.py")
PARTS = ("src/otformer", "packages", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")
PARTS += ("tests/install", "tests/test_files.py")
BUILD = "import sys; from setuptools import build_meta as b; to = sys.argv[1]; b.build_wheel(to); b.build_sdist(to)"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
PACKAGES = ("otformer", "otformer-words", "otformer-lab")  # each needs those before it
LARGEST_LIBRARY = 3_000_000  # bytes of its wheel
TORCH = re.search(r"^TORCH := (\S+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)[1]  # type: ignore[index]
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "mpmath", "POT", "geomloss", "matplotlib", "triton")  # that tests import
FOLDERS = {  # of tests, by the package that they are for; a file that imports a later package is for that one
    "otformer": ("network", "transport", "nn", "theory", "show"),
    "otformer-words": ("jobs", "words"),
    "otformer-lab": ("learning", "benchmarks", "experiments", "report"),
}


def copied(folder: Path) -> Path:
    """A copy of the tree: building leaves folders in the tree it builds from."""
    tree, left = folder / "tree", shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for part in PARTS:
        (tree / part).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tree / part, symlinks=True, ignore=left)
        else:
            shutil.copy(ROOT / part, tree / part)
    return tree


def build(project: Path, to: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of a folder with a pyproject.toml."""
    to.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", BUILD, str(to)], cwd=project, check=True, capture_output=True)
    (wheel,), (sdist,) = to.glob("*.whl"), to.glob("*.tar.gz")
    return wheel, sdist


def build_packages(tree: Path, to: Path) -> dict[str, Path]:
    """The wheels of the three packages, by name."""
    return {name: build(tree / "packages" / name, to / name)[0] for name in PACKAGES}


def interpreters() -> dict[str, str]:
    """The Pythons of this machine, by version: on the path, or pyenv's."""
    found = {}
    for version in VERSIONS:
        for each in (shutil.which(f"python{version}"), *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))):
            if (
                each
                and subprocess.run([each, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode == 0
            ):
                found.setdefault(version, str(each))
    return found


def own_tests(package: str) -> list[str]:
    """The files of tests for a package: of its folders and those before, the files that need it and none after it."""
    place = PACKAGES.index(package)
    folders = [(k, ROOT / "tests" / each) for k, name in enumerate(PACKAGES) for each in FOLDERS[name]]
    files = [(k, file) for k, folder in folders for file in sorted(folder.rglob("test_*.py"))]
    return [str(file.relative_to(ROOT)) for k, file in files if max(k, _needed(file)) == place]


def _needed(file: Path) -> int:
    """The last package that a file imports when it is loaded."""
    found = set(re.findall(r"^(?:from|import) otformer\.(words|lab)\b", file.read_text("utf-8"), re.MULTILINE))
    return 2 if "lab" in found else 1 if "words" in found else 0


def smoke(python: Path, folder: Path) -> str:
    """Run the smoke test in a venv; its last line."""
    folder.mkdir()
    call = [python, SMOKE, folder]
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(call, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return done.stdout.splitlines()[-1]


def clean(python: str, folder: Path) -> tuple[Path, list[str | Path]]:
    """A clean venv of this Python with torch, and nothing else; its Python, and the command to install more."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, f"torch=={TORCH}"], check=True)  # a build for this machine; a range may bring another
    return folder / "bin/python", pip


def smoke_all(wheels: dict[str, Path], python: str, folder: Path) -> None:
    """Install one package after the other into a clean venv of this Python; after each the smoke test."""
    own, pip = clean(python, folder / "venv")
    for name, wheel in wheels.items():
        subprocess.run([*pip, wheel], check=True)
        print(f"{name}: {wheel.stat().st_size / 1e6:.1f} MB; {smoke(own, folder / name)}", flush=True)


def run_tests(wheels: dict[str, Path], python: str, folder: Path) -> None:
    """The same with the quick tests of each package, from this tree, on the versions of constraints/setup.txt."""
    own, pip = clean(python, folder / "venv")
    pins = re.findall(r"^(\w.*?) *\\$", (ROOT / "constraints/setup.txt").read_text("utf-8"), re.MULTILINE)  # without hashes
    (folder / "pins.txt").write_text("\n".join(pins))
    pip += ["-c", folder / "pins.txt"]
    subprocess.run([*pip, *TOOLS], check=True)
    for name, wheel in wheels.items():
        subprocess.run([*pip, wheel], check=True)
        print(f"{name}: its tests", flush=True)
        call = [own, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-m", "not gpu and not slow", *own_tests(name)]
        environment = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
        if subprocess.run(call, cwd=ROOT, env=environment, check=False).returncode:
            sys.exit(f"tests of {name} fail where it is installed with {', '.join(TOOLS)} and the packages before it alone")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        made = build_packages(copied(Path(place)), Path(place) / "dist")
        size = made["otformer"].stat().st_size
        if size >= LARGEST_LIBRARY:
            sys.exit(f"the wheel of the library must be smaller than {LARGEST_LIBRARY} bytes, got {size}")
        for version, found in interpreters().items():
            (Path(place) / version).mkdir()
            smoke_all(made, found, Path(place) / version)
            shutil.rmtree(Path(place) / version)
        run_tests(made, sys.executable, Path(place) / "tested")
