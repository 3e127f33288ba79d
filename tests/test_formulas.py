"""Formulas on the site: nothing of what is written is lost, and what has an index or an exponent has it as MathML."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("formulas", ROOT / "docs" / "hooks" / "formulas.py")
assert spec is not None
assert spec.loader is not None
formulas = importlib.util.module_from_spec(spec)
spec.loader.exec_module(formulas)

INDENTED = re.compile(r"(?:(?<=\n\n)|(?<=\A))(?: {4}.*\n)+")


def lines() -> list[str]:
    """Every line of every formula on the theory pages."""
    found = []
    for name in sorted(formulas.PAGES):
        for block in INDENTED.findall((ROOT / "docs" / name).read_text("utf-8")):
            found += [line[4:] for line in block.splitlines() if line.strip()]
    return found


def letters(text: str) -> str:
    """What is read: no spaces, no signs of the notation."""
    for raised, plain in formulas.RAISED.items():
        text = text.replace(raised, plain)
    return re.sub(r"[\s_^{}√()']", "", text)


def test_no_letter_of_a_formula_is_lost_or_moved() -> None:
    every = lines()
    assert len(every) > 150
    for line in every:
        read = "".join(ElementTree.fromstring(formulas.mathml(line)).itertext())
        assert sorted(letters(read.replace("′", ""))) == sorted(letters(line)), line


@pytest.mark.parametrize(
    ("line", "markup"),
    [
        ("e^{−t}", "<msup><mi>e</mi><mrow><mo>−</mo><mi>t</mi></mrow></msup>"),
        ("Σ_ij M", "<munder><mo>Σ</mo><mrow><mi>i</mi><mi>j</mi></mrow></munder>"),
        ("P*_λ", "<msubsup><mi>P</mi><mrow><mi>λ</mi></mrow><mrow><mo>*</mo></mrow></msubsup>"),
        ("√(2n)", "<msqrt><mn>2</mn><mi>n</mi></msqrt>"),
        ("a * b", '<mi>a</mi><mspace width="0.2em"></mspace><mo>*</mo>'),
        ("x < 1 for all", "<mo>&lt;</mo>"),
        ("pr = 1 if n", "<mi>p</mi><mi>r</mi>"),
        ("pr = 1 if n", "<mtext>if</mtext>"),
        ("s_0²", "<msubsup><mi>s</mi><mrow><mn>0</mn></mrow><mrow><mn>2</mn></mrow></msubsup>"),
        ("u⁺", "<msup><mi>u</mi><mrow><mo>+</mo></mrow></msup>"),
    ],
)
def test_the_notation(line: str, markup: str) -> None:
    assert markup in formulas.mathml(line)


def test_indices_in_the_text_and_not_in_code() -> None:
    class Page:
        class file:
            src_uri = "theory.md"

    made = formulas.on_page_content(
        "<p>M_ij = e^{e_i + f_j}, S'_j, (P*_λ)_11 and <code>log_a</code> of the state_dict.</p>", Page
    )
    assert made == (
        "<p>M<sub>ij</sub> = e<sup>e<sub>i</sub> + f<sub>j</sub></sup>, S'<sub>j</sub>, (P*<sub>λ</sub>)<sub>11</sub> and "
        "<code>log_a</code> of the state_dict.</p>"
    )
