"""The wheels and the sdist as they are built from this tree: what they hold, and that they work without extras.

The venvs have no otformer but the wheels', and see of what is installed here what the wheels need; nothing is downloaded. On
clean venvs of every Python of the machine: ``make install-test``.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import otformer
from install.packages import LARGEST_LIBRARY, PACKAGES, ROOT, SMOKE, build, build_packages, copied, own_tests

EXTRAS = ("ray", "triton", "mkdocs", "geomloss", "ortools")
OF_WORDS = ("transformers", "tokenizers", "sentencepiece", "matplotlib", "mpl_toolkits")
OF_LAB = ("ot", "pot")
DATA = (".html", ".js", ".css", ".json", ".toml", ".mplstyle", ".safetensors", ".npz", ".csv", ".tsv", ".typed", ".spm")
DATA += (".md", ".txt")


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    return copied(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def wheels(tree, tmp_path_factory) -> dict[str, Path]:
    return build_packages(tree, tmp_path_factory.mktemp("dist"))


def files_of_the_source() -> set[str]:
    source = ROOT / "src"
    every = (path for path in (source / "otformer").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(source)) for path in every}


def held(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


@pytest.mark.slow
def test_a_checkout_gives_the_whole_source_and_nothing_else(tree, tmp_path):
    wheel, sdist = build(tree, tmp_path / "dist")
    wanted = files_of_the_source()
    assert {Path(name).suffix for name in wanted} <= {".py", "", *DATA}
    assert set(held(wheel)) == wanted
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    beside = {"PKG-INFO", "README.md", "LICENSE", "MANIFEST.in", "pyproject.toml", "setup.cfg"}
    assert {name.removeprefix("src/") for name in names if "egg-info/" not in name} - beside == wanted


@pytest.mark.slow
def test_the_three_wheels_hold_the_source_each_its_own_part(wheels):
    everything = [name for wheel in wheels.values() for name in held(wheel)]
    assert sorted(everything) == sorted(files_of_the_source())
    assert all(name.startswith("otformer/words/") for name in held(wheels["otformer-words"]))
    assert all(name.startswith("otformer/lab/") for name in held(wheels["otformer-lab"]))
    assert wheels["otformer"].stat().st_size < LARGEST_LIBRARY


def needs(path: Path) -> dict[str, list[str]]:
    """What a pyproject.toml asks for, and the extras."""
    project = tomllib.loads(path.read_text("utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def test_a_checkout_needs_what_its_packages_need():
    parts = [needs(ROOT / "packages" / name / "pyproject.toml") for name in PACKAGES]
    own = needs(ROOT / "pyproject.toml")
    between = [each for part in parts for each in part[""] if each.startswith("otformer")]
    assert {each.partition("==")[2] for each in between} == {otformer.__version__}
    assert set(own[""]) == {each for part in parts for each in part[""]} - set(between) | set(parts[0]["plots"])
    assert own["gpu"] == parts[0]["gpu"]
    assert own["ray"] == parts[1]["ray"]
    assert own["bench"] == parts[2]["bench"]


def test_the_packages_say_the_same_of_themselves():
    own, *parts = (
        tomllib.loads(path.read_text("utf-8"))
        for path in (ROOT / "pyproject.toml", *(ROOT / "packages" / name / "pyproject.toml" for name in PACKAGES))
    )
    for part in parts:
        for key in ("requires-python", "license", "authors"):
            assert part["project"][key] == own["project"][key]
        assert part["tool"]["setuptools"]["package-data"] == own["tool"]["setuptools"]["package-data"]
    assert parts[0]["project"]["description"] == own["project"]["description"]


def test_every_file_of_tests_belongs_to_one_package():
    found = [file for name in PACKAGES for file in own_tests(name)]
    assert len(found) == len(set(found))
    assert "tests/transport/test_solve.py" in own_tests("otformer")
    assert "tests/words/test_align.py" in own_tests("otformer-words")
    assert "tests/words/test_training.py" in own_tests("otformer-lab")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "hidden"), [(1, (*EXTRAS, *OF_WORDS, *OF_LAB)), (2, (*EXTRAS, *OF_LAB)), (3, EXTRAS)], ids=PACKAGES
)
def test_the_wheels_work_in_a_venv_without_extras(wheels, count, hidden, tmp_path):
    venv, seen = tmp_path / "venv", tmp_path / "seen"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    seen.mkdir()
    for each in Path(sysconfig.get_paths()["purelib"]).iterdir():
        name = each.name.partition("-")[0].partition(".")[0]
        if name not in hidden and not name.startswith(("otformer", "__editable__")):
            (seen / each.name).symlink_to(each)
    (own,) = venv.glob("lib/python*/site-packages")
    (own / "seen.pth").write_text(f"{seen}\n")
    chosen = [wheels[name] for name in PACKAGES[:count]]
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin/python", "install", "-q", "--no-deps", "--no-index", *chosen]
    subprocess.run(pip, check=True, capture_output=True)
    (tmp_path / "work").mkdir()
    call = [venv / "bin/python", SMOKE, tmp_path / "work"]
    done = subprocess.run(call, cwd=tmp_path, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "steps hold" in done.stdout
