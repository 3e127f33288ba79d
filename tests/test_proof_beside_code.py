"""The page docs/proof-beside-code.md: it is what its program writes, and all that it names exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("proof_beside_code", ROOT / "docs" / "proof_beside_code.py")
assert spec is not None
assert spec.loader is not None
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
PAGE = program.PAGE.read_text("utf-8")
NUMBER = re.compile(r"−?-?\d+\.\d+(?:e[+-]\d+)?")


def test_the_page_is_what_the_program_writes() -> None:
    made = program.page()
    assert NUMBER.sub("#", made) == NUMBER.sub("#", PAGE), "stale: python docs/proof_beside_code.py"
    theirs, ours = ([float(t.replace("−", "-")) for t in NUMBER.findall(text)] for text in (PAGE, made))
    assert theirs == pytest.approx(ours, rel=1e-3, abs=2e-4)


@pytest.mark.parametrize(("name", "file"), re.findall(r"`(\w+)` \(`(\w+\.v)`\)", PAGE))
def test_what_coq_checks_is_there(name: str, file: str) -> None:
    assert re.search(rf"^(Theorem|Lemma|Definition) {name}\b", (ROOT / "proofs" / file).read_text("utf-8"), re.MULTILINE)


def test_the_numbers_agree_with_each_other() -> None:
    """The sum of the products is the logit; the head's value is the tanh; the write is the gradient step; L and μ fall."""
    rows = dict(re.findall(r"^\| \*\*(\d)\. .*<br>(.*) \|$", PAGE, re.MULTILINE))
    products = [float(t) for t in NUMBER.findall(rows["2"])]
    assert sum(products[:-1]) == pytest.approx(products[-1], abs=5e-4)
    assert float(NUMBER.findall(rows["3"])[0]) == pytest.approx(products[-1], abs=1e-4)
    value, quotient, tanh = (float(t) for t in NUMBER.findall(rows["5"]))
    assert value == pytest.approx(quotient, abs=2e-6)
    assert value == pytest.approx(tanh, abs=2e-6)
    change = float(NUMBER.findall(rows["6"])[-1])
    assert change == pytest.approx(float(NUMBER.findall(rows["7"])[-1]), abs=2e-6)
    assert change == pytest.approx(-program.REG * value, abs=2e-6)
    before, after = (float(t) for t in NUMBER.findall(rows["8"]))
    assert after < before
    assert 0 < float(NUMBER.findall(rows["9"])[-1]) < 1
