"""The explorer's figures as tables, for a screen reader: what they say is what is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.browser import Browser
from helpers.explorer_page import go, settle
from otformer.explorer.page import write_page

pytestmark = pytest.mark.slow
SECTIONS = {"play": 2, "same": 1, "break": 3, "learned": 4, "words": 2}  # tables of each
CELLS = (
    "return [...document.querySelectorAll(`#${arguments[0]}-table table`)].map("
    "t => [...t.tBodies[0].rows].map(r => [...r.cells].slice(1).map(c => c.textContent)))"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return write_page(tmp_path_factory.mktemp("explorer") / "explore.html")


def unfold(browser: Browser, section: str) -> list[list[list[str]]]:
    browser.js("document.getElementById(`${arguments[0]}-table`).open = true; explorer.redraw()", section)
    go(browser, section)
    return browser.js(CELLS, section)


def test_every_section_has_its_numbers_as_tables(browser: Browser, page: Path) -> None:
    browser.open(page, "#layer=40&brokenLayer=60&broken=head&learned=14&many=9")
    tables = {section: unfold(browser, section) for section in SECTIONS}
    assert {section: len(found) for section, found in tables.items()} == SECTIONS
    attention = browser.js("return [...explorer.matrix]")
    assert [float(cell) for row in tables["play"][0] for cell in row] == pytest.approx(attention, abs=6e-4)
    for row in tables["same"][0]:  # 9 numbers are sorted: one place each
        assert sorted(map(float, row))[-1] > 0.999
    whole, broken, errors = tables["break"]
    assert whole != broken
    assert float(errors[-1][0]) < 0.1 < float(errors[-1][1])  # one head only: the columns' sums stay wrong
    right = tables["learned"][3]
    assert right[-1][1] == "100 %"  # sort-beyond, layer 20
    assert browser.faults() == []
    names = "return [...document.querySelectorAll('canvas')].map(c => c.getAttribute('aria-label'))"
    labels = browser.js(names)
    assert len(set(labels)) == len(labels)
    assert any("after layer 20: constructed" in label for label in labels)
    assert browser.complaints() == []


def test_tables_follow_the_figure(browser: Browser, page: Path) -> None:
    browser.open(page, "#learned=3")
    before = unfold(browser, "learned")
    browser.js("explorer.set({learned: 20})")
    settle(browser)
    after = browser.js(CELLS, "learned")
    assert after[1] != before[1]
    assert after[3] == before[3]


def test_numbers_too_large_are_words(browser: Browser, page: Path) -> None:
    browser.open(page, "#x=-10,10,0&y=10,-10,3&reg=0.0001&schedule=gradient&depth=300&layer=200&broken=sign,index,identity")
    for section in SECTIONS:
        unfold(browser, section)
    said = browser.js("return document.body.innerText")
    assert not [word for word in ("NaN", "Infinity", "undefined", "null") if word in said]
    assert browser.complaints() == []
