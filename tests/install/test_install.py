"""The wheel and the sdist as they are built from this tree: what they hold, and that the wheel works without extras.

The venv has no otformer but the wheel's, and sees what is installed here but for the extras; nothing is downloaded. On clean
venvs of every Python of the machine: ``make install-test``.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from install.packages import ROOT, SMOKE, build

EXTRAS = (
    "numba",
    "llvmlite",
    "transformers",
    "tokenizers",
    "sentencepiece",
    "ray",
    "triton",
    "mkdocs",
    "geomloss",
    "ortools",
)
DATA = (".html", ".js", ".css", ".json", ".toml", ".safetensors", ".npz", ".csv", ".tsv", ".typed", ".spm", ".md", ".txt")


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("build"))


def files_of_the_package() -> set[str]:
    source = ROOT / "src"
    every = (path for path in (source / "otformer").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(source)) for path in every}


@pytest.mark.slow
def test_wheel_and_sdist_hold_the_whole_package_and_nothing_else(packages):
    wheel, sdist = packages
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    wanted = files_of_the_package()
    assert {Path(name).suffix for name in wanted} <= {".py", "", *DATA}
    assert {name for name in held if ".dist-info/" not in name} == wanted
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    beside = {"PKG-INFO", "README.md", "LICENSE", "MANIFEST.in", "pyproject.toml", "setup.cfg"}
    assert {name.removeprefix("src/") for name in names if "egg-info/" not in name} - beside == wanted


@pytest.mark.slow
def test_the_wheel_works_in_a_venv_without_extras(packages, tmp_path):
    venv, seen = tmp_path / "venv", tmp_path / "seen"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    seen.mkdir()
    for each in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not each.name.startswith(("otformer", "__editable__", *EXTRAS)):
            (seen / each.name).symlink_to(each)
    (own,) = venv.glob("lib/python*/site-packages")
    (own / "seen.pth").write_text(f"{seen}\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        venv / "bin/python",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        packages[0],
    ]
    subprocess.run(pip, check=True, capture_output=True)
    (tmp_path / "work").mkdir()
    call = [venv / "bin/python", SMOKE, tmp_path / "work"]
    done = subprocess.run(call, cwd=tmp_path, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "steps hold" in done.stdout
