"""The explorer and bad input: it is said, nothing breaks, and what comes from outside stays text."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from helpers.browser import Browser
from helpers.explorer_page import STILL, choose, drag, go, ink, settle, state, text
from otformer.explorer.page import write_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return write_page(tmp_path_factory.mktemp("explorer") / "explore.html")


BAD = {
    "3 1 abc": "“abc”",
    "7": "at least 2 numbers",
    " ".join(map(str, range(10_000))): "10,000",
    "<script>alert(1)</script>": "“<script>alert(1)</sc”",
    "1e999 2": "“1e999”",
    "": "at least 2 numbers",
}


@pytest.mark.parametrize("given", BAD, ids=lambda given: given[:12])
def test_bad_lists_are_said_to_be_bad_and_the_page_stays_as_it_was(browser: Browser, page: Path, given: str) -> None:
    browser.open(page, STILL)
    settle(browser)
    before = ink(browser, "play-matrix")
    choose(browser, "list", given)
    assert BAD[given] in text(browser, "message")
    assert ink(browser, "play-matrix") == before
    assert browser.js("return document.getElementById('list').getAttribute('aria-invalid')") == "true"
    choose(browser, "list", "5 3 4")
    assert (text(browser, "message"), browser.js("return explorer.problem.n")) == ("", 3)
    assert browser.complaints() == []


@pytest.mark.parametrize(
    ("fragment", "said"),
    [
        ("#layer=abc&schedule=fast&reg=0.1", ["layer=abc", "schedule=fast"]),
        ("#x=0,1,2&y=0,1", ["x and y"]),
        ("#list=%E0%A4%A", ["list="]),
        ("#<script>alert(1)</script>=1&n=1e9", ["a name that this page knows", "n=1e9"]),
        ("#__proto__=1&constructor=2", ["__proto__", "constructor"]),
        ("#depth=99999&pair=-1&broken=everything", ["depth=99999", "pair=-1", "broken=everything"]),
        ("#edits=z:blank&reg=0.1", ["edits=z:blank (expected a register, one of x, y"]),
        ("#x=NaN&source=", ["x=NaN", "source="]),
    ],
)
def test_a_damaged_link_is_used_as_far_as_it_is_sound(browser: Browser, page: Path, fragment: str, said: list[str]) -> None:
    browser.open(page, fragment)
    settle(browser)
    assert text(browser, "message").startswith("This link is damaged")
    for part in said:
        assert part in text(browser, "message")
    if "reg=0.1" in fragment:
        assert state(browser, "reg") == 0.1
    choose(browser, "schedule", "gradient")
    assert browser.complaints() == []


def test_words_from_outside_are_text(browser: Browser, page: Path) -> None:
    evil = ("the <script>alert(1)</script> cat", "le chat <img src=x onerror=alert(1)>")
    browser.open(page, "#mode=words&source={}&target={}".format(*map(quote, evil)))
    settle(browser)
    browser.js("document.getElementById('play-table').open = true; explorer.redraw()")
    settle(browser)
    assert "script" in text(browser, "play-table")
    assert browser.js("return document.querySelectorAll('main script, main img').length") == 0
    assert "made of their letters" in text(browser, "schedule-note")
    choose(browser, "source", "word " * 60)
    assert "at most 40 words, not 60" in text(browser, "message")
    assert (browser.complaints(), browser.requests()) == ([], [])


EXTREMES = (
    "#reg=0.0001&mode=plane&n=30&list=&depth=40&layer=13&show=plan&brokenLayer=40&broken=sign&step=4",
    "#x=-10,10,0&y=10,-10,3&reg=0.0001&schedule=gradient&depth=300&layer=200&broken=sign,index,identity",
    "#list=5%205%205%205&reg=1&depth=1&layer=1&sink=token&broken=sign,sink,index,identity,head,squares",
    "#mode=words&source=a&target=b%20c%20d&reg=0.0001&layer=50&head=columns&i=0&j=2",
    "#schedule=gradient&reg=0.0001&depth=300&brokenLayer=300&broken=sign&step=4"
    "&edits=sign:times:100,sign:times:100,u:plus:100,u:times:100,y:times:100,one3:times:-100",
    "#list=1e100%20-1e100&schedule=paper&reg=0.0001&layer=3&learned=20&sorter=gradient&many=9",
)


@pytest.mark.parametrize("fragment", EXTREMES)
def test_extremes_give_words_not_nan(browser: Browser, page: Path, fragment: str) -> None:
    browser.open(page, fragment)
    for section in ("play", "number", "same", "break", "learned", "words"):
        go(browser, section)
    said = browser.js("return document.body.innerText")
    assert not [word for word in ("NaN", "Infinity", "undefined", "null") if word in said]
    assert text(browser, "message") == ""
    assert browser.complaints() == []


def test_the_layer_said_of_the_broken_network_is_one_that_it_has(browser: Browser, page: Path) -> None:
    browser.open(page, "#mode=plane&list=&n=200&depth=400&brokenLayer=400&reg=0.005")
    go(browser, "break")
    assert "layer 300 of 300" in text(browser, "break-player")


def test_the_list_field_shows_what_was_dragged(browser: Browser, page: Path) -> None:
    browser.open(page, STILL)
    settle(browser)
    drag(browser, 20)
    settle(browser)
    moved = browser.js("return document.getElementById('list').value").split()
    assert len(moved) == 12
    points = browser.js("return explorer.points.x.map(p => p[0])")
    assert list(map(float, moved)) == pytest.approx(points, rel=1e-3)


def test_half_a_surrogate_pair_is_no_fault(browser: Browser, page: Path) -> None:
    browser.open(page, "#mode=words")
    settle(browser)
    browser.js(
        "const e = document.getElementById('source'); e.value = 'a \\ud83e fox'; e.dispatchEvent(new Event('change'))"
    )
    settle(browser)
    browser.js("await new Promise(done => setTimeout(done, 300))")
    assert "%EF%BF%BD" in browser.js("return location.hash")
    assert browser.complaints() == []
