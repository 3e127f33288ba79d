"""The report in a browser: quiet, offline, legible on a phone, in the dark and on paper."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest

from helpers.browser import Browser
from otformer.lab.experiments.registry import chosen
from otformer.lab.experiments.runner import reproduce
from otformer.lab.report.html import write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three quick experiments, one of each part."""
    out = tmp_path_factory.mktemp("report")
    reproduce(chosen(["sizes", "rates", "errata"]), out)
    return write_report(out)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_quiet_offline_and_no_wider_than_the_window(browser: Browser, report: Path, width: int, dark: bool) -> None:
    browser.open(report, width=width, dark=dark)
    opened = "document.querySelectorAll('details').forEach(each => each.open = true)"
    browser.js(opened)
    assert (browser.complaints(), browser.requests(), browser.wide()) == ([], [], False)
    paper = browser.js("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is not dark
    assert browser.faults() == []


@pytest.mark.slow
@pytest.mark.parametrize(("width", "file"), [(1280, "figure.png"), (390, "figure-narrow.png")])
def test_pictures_are_there_before_anybody_scrolls(browser: Browser, report: Path, width: int, file: str) -> None:
    browser.open(report, width=width)
    loaded = (
        "return [...document.images].map(each => [each.currentSrc.split('/').pop(), each.complete, each.naturalWidth > 0])"
    )
    assert browser.js(loaded) == [[file, True, True]] * 3
    smallest = browser.js("return Math.min(...[...document.images].map(each => each.getBoundingClientRect().width))")
    assert smallest > 0.8 * min(width, 1000)


@pytest.mark.slow
def test_links_lead_to_their_places(browser: Browser, report: Path) -> None:
    browser.open(report)
    broken = (
        "return [...document.querySelectorAll('a[href^=\"#\"]')].filter("
        "each => !document.getElementById(each.getAttribute('href').slice(1))).length"
    )
    assert browser.js(broken) == 0
    browser.click("nav a[href='#errata']")
    top = browser.js("return document.getElementById('errata').getBoundingClientRect().top")
    assert abs(top) < 5


@pytest.mark.slow
def test_details_unfold_and_fold(browser: Browser, report: Path) -> None:
    browser.open(report, "#sizes")
    shown = "return document.querySelector('#sizes .checks').checkVisibility()"
    assert not browser.js(shown)
    browser.click("#sizes summary")
    assert browser.js(shown)


@pytest.mark.slow
def test_it_prints(browser: Browser, report: Path) -> None:
    browser.open(report, dark=True)
    printed = b64decode(browser.cdp("Page.printToPDF", printBackground=True)["data"])
    assert printed.startswith(b"%PDF")
    browser.cdp("Emulation.setEmulatedMedia", media="print")
    colours = browser.js("const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]")
    browser.cdp("Emulation.setEmulatedMedia", media="")
    assert colours == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
