"""`make mutations`: its claims fit the code, its page fits the claims, and a change that no test notices is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mutations import page
from mutations.__main__ import run
from mutations.claims import PAGE, ROOT, Claim, Seen, digest, load

CLAIMS = load()
THEOREMS = ["A", "B", "C", "L", "O", "F", "G", "P", "W", "D", "E", "E⁺", "H", "I", "J", "X", "K", "N", "S", "T", "U"]


def test_every_edit_changes_one_place() -> None:
    assert [claim.name for claim in CLAIMS if claim.old == claim.new] == []
    found = {claim.name: (ROOT / claim.file).read_text("utf-8").count(claim.old) for claim in CLAIMS}
    assert {name: count for name, count in found.items() if count != 1} == {}
    assert [claim.file for claim in CLAIMS if claim.file.split("/")[0] not in ("src", "tests")] == []


def test_every_named_test_exists() -> None:
    for claim in CLAIMS:
        assert len(claim.functions()) == len(claim.tests) > 0, claim.name
        for file, function in claim.functions():
            assert f"\ndef {function}(" in (ROOT / "tests" / file).read_text("utf-8"), f"{claim.name}: {file}::{function}"


def test_no_claim_is_listed_twice_and_no_theorem_is_left_out() -> None:
    assert [name for name, count in Counter(claim.name for claim in CLAIMS).items() if count > 1] == []
    letters = {claim.theorem.split(" ")[0].split(".")[0] for claim in CLAIMS}
    assert set(THEOREMS) - letters == set()
    sections = {claim.theorem.split(" ")[1].split(".")[0] for claim in CLAIMS if claim.theorem.startswith("theory ")}
    assert {str(k) for k in range(3, 11)} - sections == set()


def test_the_page_is_made_from_these_claims() -> None:
    """If not: `make mutations`."""
    text = PAGE.read_text("utf-8")
    assert page.MARK.format(digest()) in text
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    shown = [tuple(row.replace("\\|", "¦").strip("| ").split(" | ")[:2]) for row in rows]
    assert shown == [(claim.theorem, claim.claim.replace("|", "¦")) for claim in CLAIMS]


SMALL = '''"""A bound."""

def bound(x):
    return 2 * x  # twice
'''
CHECK = """
from small import bound

def test_bound(record_property):
    record_property("problems", 9)
    record_property("largest ratio", 1.9 / bound(1))
    assert 1.9 <= bound(1)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {
        "src/small.py": SMALL,
        "tests/theory/test_small.py": CHECK,
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\naddopts = "--import-mode=importlib"\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


STRONGER = Claim("Z", "x ≤ 2", ("theory/test_small.py::test_bound",), "× 0.8", "src/small.py", "2 * x", "1.6 * x")


def test_a_stronger_claim_is_noticed_and_the_tree_stays_as_it_is(tree: Path) -> None:
    said: list[str] = []
    seen, code = run([STRONGER], 1, said.append, tree, ())
    assert (code, seen) == (0, {"Z: x ≤ 2": Seen(9, 0.95, "theory/test_small.py::test_bound")})
    assert said[-1] == "1 claims, 0 with something wrong"
    assert (tree / "src/small.py").read_text() == SMALL
    assert page.row(STRONGER, seen[STRONGER.name])[2:] == ["9", "0.95", "× 0.8", "`theory/test_small.py::test_bound`"]


def test_what_goes_unnoticed_or_fails_otherwise_is_told(tree: Path) -> None:
    changes = {
        "a comment": ("# twice", "# two times", "no test fails if it is made stronger (× 0.8)"),
        "no Python": ("2 * x", "2 *", "does not fail by an assertion"),
        "another error": ("2 * x", "2 / 0 * x", "does not fail by an assertion: ZeroDivisionError"),
    }
    chosen = [replace(STRONGER, claim=name, old=old, new=new) for name, (old, new, _) in changes.items()]
    said: list[str] = []
    seen, code = run(chosen, 2, said.append, tree, ())
    assert code == 1
    for name, (_, _, told) in changes.items():
        assert len(seen[f"Z: {name}"].wrong) == 1
        assert told in seen[f"Z: {name}"].wrong[0]
    assert sum("NOT NOTICED" in line for line in said) == 3


def test_a_sharp_claim_must_not_be_called_unsharp(tree: Path) -> None:
    seen, code = run([replace(STRONGER, unsharp="so it seems")], 1, lambda _: None, tree, ())
    assert code == 1
    assert seen[STRONGER.name].wrong == ["called not sharp, but 0.95 of the bound is measured: 20 % would be noticed"]


def test_a_test_that_fails_without_a_change_is_told(tree: Path) -> None:
    (tree / "src/small.py").write_text(SMALL.replace("2 * x", "x"))
    seen, code = run(
        [replace(STRONGER, old="return x", new="return 0.8 * x", ratio="equality")], 1, lambda _: None, tree, ()
    )
    assert code == 1
    assert "fails without a change" in seen[STRONGER.name].wrong[0]
