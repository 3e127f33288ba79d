"""The file of versions and hashes that set-up installs from: whole, and of the packages that pyproject.toml asks for."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
INSTALLED = ("dev", "ray", "docs")  # extras, by the Makefile
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def locked() -> dict[str, list[tuple[Requirement, list[str]]]]:
    """Every line of the file, by package: the requirement, and its hashes."""
    found: dict[str, list[tuple[Requirement, list[str]]]] = {}
    for entry in (ROOT / "constraints/setup.txt").read_text().replace("\\\n", " ").splitlines():
        text, *hashes = re.split(r"\s+(?=--hash)", entry.strip())
        each = Requirement(text)
        found.setdefault(canonicalize_name(each.name), []).append((each, hashes))
    return found


def test_every_line_pins_one_version_and_has_hashes_and_names_no_place_to_fetch_from():
    for name, lines in locked().items():
        for each, hashes in lines:
            assert re.fullmatch(r"==[^*]+", str(each.specifier)), each
            assert hashes, name
            assert all(HASH.fullmatch(one) for one in hashes), name
            assert each.url is None, name
    assert "://" not in "".join(file.read_text() for file in (ROOT / "constraints").iterdir())


def test_it_has_what_pyproject_and_setup_ask_for_in_versions_that_fit():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    asked += [each for extra in INSTALLED for each in project["project"]["optional-dependencies"][extra]]
    have = locked()
    for wanted in map(Requirement, asked):
        name = canonicalize_name(wanted.name)
        if name == "torch":
            continue  # pinned in the Makefile
        assert name in have, f"{name} is not in constraints/setup.txt: make constraints"
        for each, _ in have[name]:
            (version,) = each.specifier
            assert wanted.specifier.contains(version.version, prereleases=True), f"{each} for {wanted}: make constraints"


def test_torch_brings_nothing_that_is_not_in_it():
    """On a CPU; builds for a GPU bring the libraries of its maker."""
    from importlib.metadata import requires

    needed = [Requirement(each) for each in requires("torch") or []]
    names = {canonicalize_name(each.name) for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})}
    gpu = {name for name in names if name.startswith(("nvidia-", "cuda-")) or name == "triton"}
    assert names - gpu - set(locked()) == set()
    assert "torch" not in locked()


def test_what_comes_from_npm_has_one_version_and_a_hash_and_names_no_place_to_fetch_from():
    """`npm ci` refuses a package whose hash is another, and a file of hashes that does not fit what is asked for."""
    place = ROOT / "tests/browser"
    asked = json.loads((place / "package.json").read_text())["devDependencies"]
    text = (place / "package-lock.json").read_text()
    have = {name.removeprefix("node_modules/"): each for name, each in json.loads(text)["packages"].items() if name}
    assert {name: each["version"] for name, each in have.items()} == asked
    assert all(re.fullmatch(r"sha512-[\w+/]{86}==", each["integrity"]) for each in have.values())
    assert "://" not in text
    assert "npm ci " in (ROOT / "Makefile").read_text()
    assert "npm install" not in (ROOT / "Makefile").read_text()
