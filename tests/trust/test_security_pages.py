"""Text from outside stays text on every page and picture that is written: words, labels, names of models and files, fields.

A page made with hostile text must have the very elements and attributes of one made with harmless text of the same length;
and where there is a Chromium, nothing of it runs in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import otformer as of
from helpers import tiny_models
from helpers.browser import Browser
from needs import missing
from otformer.explorer.page import write_page
from otformer.lab.report.html import write_report
from otformer.network.transformer import AligningTransformer
from otformer.words.aligning import Alignment

EVIL = [
    "<b>",
    "\"'><img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "--><svg/onload=alert(3)>",
    "\u2028\u2029`${alert(4)}`\\",
    "/*DATA*/null;/*BODY*//*TITLE*/",
    "$seconds ${claims} $$x$ $\\frac$",
    "&lt;i&gt;&#60;i&#62;",
]
HARMLESS = ["x" * len(text) for text in EVIL]
SQUARE = np.arange(64.0).reshape(8, 8) % 5


def result_page(folder: Path, texts: list[str]) -> Path:
    of.solve(SQUARE, reg=1.0).save(folder / "result.html", labels=(texts, texts))
    return folder / "result.html"


def exact_page(folder: Path, texts: list[str]) -> Path:
    of.solve(SQUARE, reg=0).save(folder / "exact.html", labels=(texts, texts))
    return folder / "exact.html"


def trace_page(folder: Path, texts: list[str]) -> Path:
    x = np.linspace(0, 1, 8)[:, None]
    AligningTransformer(dim=1, reg=0.5, depth=40)(x, x).save(folder / "trace.html", labels=(texts, texts))
    return folder / "trace.html"


def alignment_page(folder: Path, texts: list[str]) -> Path:
    words = [text.replace(" ", "_") for text in texts]
    Alignment({(k, k): 1.0 for k in range(8)}, words, words, np.eye(8, dtype=np.float32)).save(folder / "alignment.html")
    return folder / "alignment.html"


def report_page(folder: Path, texts: list[str]) -> Path:
    """One experiment of ours and one unknown, hostile in every field; and a folder whose run.json is none of ours."""
    folder = folder / "report"
    text = " ".join(texts)
    for name in ("fox", text.replace("/", "∕")):
        fields = dict.fromkeys(("title", "source", "claim", "summary"), text)
        fields |= {"checks": {text: text}, "settings": {text: text}, "versions": {text: text}}
        fields |= {"finding": dict.fromkeys(("title", "brief", "number"), text)}
        about = {"name": name, "position": 0, "seed": 0, "full": False, "seconds": 1.5, **fields}
        (folder / name).mkdir(parents=True)
        (folder / name / "run.json").write_text(json.dumps(about))
        (folder / name / "numbers.csv").write_text("\n".join(f'"{each.replace(chr(34), chr(34) * 2)}",1' for each in texts))
    strange = folder / texts[1]
    strange.mkdir()
    (strange / "run.json").write_text("{}")
    return write_report(folder)


def probe_page(folder: Path, texts: list[str]) -> Path:
    """Words, and the name of the model's folder, which is that of the page's title."""
    pytest.importorskip("transformers", reason=missing("words"))
    from otformer.words.models.models import load
    from otformer.words.probe.page import show
    from otformer.words.probe.probe import ProbeSettings

    model = load(tiny_models.bert(folder / texts[1]))
    pair = " ".join(text.replace(" ", "_") for text in texts[:4])
    return show(model, [(pair, pair)], settings=ProbeSettings(by="spaces")).save(folder / "probe.html")


PAGES: dict[str, Callable[[Path, list[str]], Path]] = {
    made.__name__: made for made in (result_page, exact_page, trace_page, alignment_page, report_page, probe_page)
}


class Elements(HTMLParser):
    """Elements of a page in order, with the names of their attributes; numbers in scripts are not looked into."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[Any, ...]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, *(name for name, _ in attrs)))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment",))


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> dict[str, list[Path]]:
    made: dict[str, list[Path]] = {}
    for name, page in PAGES.items():
        made[name] = [page(tmp_path_factory.mktemp(name), texts) for texts in (EVIL, HARMLESS)]
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_hostile_text_adds_no_element_and_no_attribute(both, name):
    evil, harmless = (file.read_text("utf-8") for file in both[name])
    assert Elements(evil).found == Elements(harmless).found
    assert "alert" in evil  # it is there, as text
    assert not any(attribute.startswith("on") for element in Elements(evil).found for attribute in element[1:])
    assert "Content-Security-Policy" in evil


@pytest.mark.slow
def test_nothing_hostile_runs_in_a_browser(both):
    browser = Browser()
    try:
        for evil, _ in both.values():
            browser.open(evil)  # an alert would make the next call fail
            assert browser.js("return document.querySelectorAll('img[src=x], svg[onload]').length") == 0
            assert not browser.requests()
            assert not [line for line in browser.complaints() if "Refused to" in line or "SyntaxError" in line]
        browser.open(write_page(evil.parent / "explore.html"), f"#numbers={EVIL[1]}&section={EVIL[2]}")
        assert browser.js("return document.querySelectorAll('img').length") == 0
    finally:
        browser.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["result", "alignment"])
def test_pictures_of_hostile_text_are_well_formed_and_have_no_script(tmp_path, name):
    """The probe's figure has the model's name in its title: tests/words/test_probe_title.py."""
    file = tmp_path / "picture.svg"
    if name == "result":
        of.solve(SQUARE, reg=1.0).save(file, labels=(EVIL, EVIL))
    else:
        Alignment({(0, 0): 1.0}, EVIL, EVIL).save(file)
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(file).iter()}
    assert tags.isdisjoint({"script", "img", "b", "i"})
