"""Wheel and sdist of this tree, and clean environments to install them in.

``python tests/install/packages.py``, or ``make install-test``, installs the wheel into a clean venv without extras for every
Python from 3.11 on that this machine has, and runs smoke.py there. It downloads what the wheel needs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).with_name("smoke.py")
PARTS = ("src/otformer", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "tests/install", "tests/test_files.py")
BUILD = "import sys; from setuptools import build_meta as b; to = sys.argv[1]; b.build_wheel(to); b.build_sdist(to)"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, from a copy: building leaves folders in the tree it builds from."""
    tree, made = folder / "tree", folder / "dist"
    for part in PARTS:
        (tree / part).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / part, tree / part)
    made.mkdir()
    subprocess.run([sys.executable, "-c", BUILD, str(made)], cwd=tree, check=True, capture_output=True)
    (wheel,), (sdist,) = made.glob("*.whl"), made.glob("*.tar.gz")
    return wheel, sdist


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


def smoke(wheel: Path, python: str, folder: Path) -> str:
    """Install the wheel into a clean venv of this Python and run the smoke test; its last line."""
    subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
    own = folder / "venv/bin/python"
    subprocess.run([own, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel], check=True)
    (folder / "work").mkdir()
    done = subprocess.run([own, SMOKE, folder / "work"], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        made, _ = build(Path(place))
        for version, found in interpreters().items():
            (Path(place) / version).mkdir()
            print(smoke(made, found, Path(place) / version), flush=True)
            shutil.rmtree(Path(place) / version)
