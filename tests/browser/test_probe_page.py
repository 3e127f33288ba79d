"""The page of a model's attention in a real browser: every control, the address, hostile words, other files, both widths."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from needs import missing

pytest.importorskip("transformers", reason=missing("words"))
from helpers import tiny_models
from helpers.browser import Browser
from otformer.words.models.models import load
from otformer.words.probe.page import ProbePage, show
from otformer.words.text.gold import parse_links

EVIL = "<script>document.title='gone'</script>"
PAIRS = ["the cat sleeps in the house ||| le chat dort dans la maison", f"the {EVIL} ||| le <b>chat</b>"]
IDS = ["pair", "reading", "layer", "head", "plan"]
SHOWN = f"return Object.fromEntries({IDS}.map(id => [id, document.getElementById(id).value]))"
PIXELS = "return document.getElementById(arguments[0]).toDataURL()"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[ProbePage, Path]:
    folder = tmp_path_factory.mktemp("page")
    model = load(tiny_models.marian(folder / "<i>marian"))
    page = show(model, PAIRS, [parse_links("0-0 1-1"), parse_links("")])
    return page, page.save(folder / "page.html")


def choose(browser: Browser, name: str, value: object) -> None:
    browser.js(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event(e.type === 'range' ? 'input' : 'change', { bubbles: true }))",
        name,
        str(value),
    )


def text(browser: Browser, name: str) -> str:
    return str(browser.js("return document.getElementById(arguments[0]).textContent", name))


def per_cent(browser: Browser) -> list[float]:
    """Distance, what columns lack, spread of the rows, share on words."""
    return [float(x) for x in re.findall(r"(\S+) %", text(browser, "numbers"))]


def quiet(browser: Browser) -> None:
    assert (browser.complaints(), browser.requests()) == ([], [])


def test_it_opens_where_attention_is_nearest_and_says_what_it_is(browser, made):
    page, file = made
    browser.open(file)
    near = page.probes[0].nearest
    shown = browser.js(SHOWN)
    expected = {"pair": "1", "reading": near["reading"], "layer": str(near["layer"]), "head": "0", "plan": "embeddings"}
    assert shown == expected
    assert text(browser, "verdict").startswith(page.probes[0].verdict())
    assert per_cent(browser)[0] == pytest.approx(100 * near["distance"], abs=0.06)
    assert text(browser, "model") == "<i>marian"
    quiet(browser)


def test_every_control_does_what_it_says(browser, made):
    page, file = made
    browser.open(file, "#reading=cross-input&layer=1&head=0")
    probe, maps = page.probes[0], set()
    for reading in ("cross-input", "cross-output"):
        for layer in (1, 2):
            for head in (0, 1, 2):
                choose(browser, "reading", reading)
                choose(browser, "layer", layer)
                choose(browser, "head", head)
                alike = probe.likeness[reading][layer - 1, head - 1]  # the mean, head 0, is last
                expected = [alike[0], alike[2], alike[3], probe.share[reading][layer - 1, head - 1]]
                assert per_cent(browser) == pytest.approx(100 * np.array(expected), abs=0.06)
                maps.add(browser.js(PIXELS, "attention-map"))
    assert len(maps) == 12
    plan = browser.js(PIXELS, "plan-map")
    choose(browser, "plan", "states")
    assert text(browser, "plan-title") == "Transport plan of the states of layer 2"
    assert per_cent(browser)[0] == pytest.approx(100 * probe.likeness["cross-output"][1, 1, 5], abs=0.06)
    assert browser.js(PIXELS, "plan-map") != plan
    square_root = browser.js(PIXELS, "attention-map")
    choose(browser, "scale", 1)
    assert browser.js(PIXELS, "attention-map") != square_root
    choose(browser, "pair", 2)
    assert text(browser, "verdict").startswith(page.probes[1].verdict())
    quiet(browser)


def test_numbers_in_the_table_and_under_the_pointer(browser, made):
    page, file = made
    browser.open(file, "#reading=cross-output&layer=2&head=1")
    A, plan = page.probes[0].scaled("cross-output")[1, 0], 6 * page.probes[0].plan
    cells = browser.js(
        "return [...document.querySelectorAll('#table tr')].slice(1).map(r => [...r.cells].slice(1).map(c => c.textContent))"
    )
    for j, row in enumerate(cells):
        for i, cell in enumerate(row):
            attention, transport = map(float, re.fullmatch(r"(\S+) \((\S+)\)", cell).groups())
            assert attention == pytest.approx(A[j, i], abs=0.008)
            assert transport == pytest.approx(plan[j, i], abs=0.008)
    browser.js(
        "const b = boxes['attention-map'], e = new PointerEvent('pointermove', { bubbles: true });"
        "Object.defineProperty(e, 'offsetX', { value: b.left + 1.5 * b.cell });"
        "Object.defineProperty(e, 'offsetY', { value: b.top + 1.5 * b.cell });"
        "document.getElementById('attention-map').dispatchEvent(e)"
    )
    assert (
        text(browser, "attention-cell")
        == f"chat – cat: attention {cells[1][1].replace(' (', ', plan ')[:-1]}, linked by hand"
    )
    lines = "return document.querySelectorAll('#attention-links line.on').length"
    browser.js(
        "const word = document.querySelector('#attention-links text.word');"
        "word.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }))"
    )
    assert browser.js(lines) == (A[:, 0] >= 0.05).sum() + 1  # and the link made by hand
    quiet(browser)


def test_keys_tiles_play_and_the_address(browser, made):
    _, file = made
    browser.open(file, "#pair=1&reading=cross-output&layer=1&head=0")
    browser.press("ARROW_RIGHT", "h", "h")
    assert (browser.js(SHOWN)["layer"], browser.js(SHOWN)["head"]) == ("2", "2")
    browser.js(
        "const e = new MouseEvent('click', { bubbles: true });"
        "Object.defineProperty(e, 'offsetX', { value: tiles.left + 5 });"
        "Object.defineProperty(e, 'offsetY', { value: tiles.top + 5 });"
        "document.getElementById('every').dispatchEvent(e)"
    )
    assert (browser.js(SHOWN)["layer"], browser.js(SHOWN)["head"]) == ("1", "1")
    address, state = browser.js("return location.hash"), browser.js(SHOWN)
    pixels = browser.js(PIXELS, "attention-map")
    browser.click("#play")
    layer = browser.js("await new Promise(done => setTimeout(done, 900)); return document.getElementById('layer').value")
    assert (layer, text(browser, "play")) == ("2", "Play")  # it has stopped at the last layer
    browser.open(file, address)
    assert (browser.js(SHOWN), browser.js(PIXELS, "attention-map")) == (state, pixels)
    quiet(browser)


@pytest.mark.parametrize(("address", "asks"), [
    ("#layer=99&head=x", "layer 99, head x"), ("#pair=0&reading=<b>", "pair 0, reading <b>"), ("#%%%&&=", ""),
])  # fmt: skip
def test_a_damaged_address(browser, made, address, asks):
    _, file = made
    browser.open(file, address)
    assert text(browser, "message") == (f"The address asks for {asks}, which is not here." if asks else "")
    assert text(browser, "numbers")
    quiet(browser)


def test_words_are_text(browser, made):
    _, file = made
    browser.open(file, "#pair=2")
    assert browser.js("return document.title") == "Attention of <i>marian, beside transport"
    assert browser.js("return document.querySelectorAll('script').length") == 2
    assert browser.js("return document.querySelectorAll('main b, main i').length") == 1  # the verdict
    words = browser.js("return [...document.querySelectorAll('#plan-links text.word title')].map(t => t.textContent)")
    assert "".join(words).startswith("the<script>document")
    quiet(browser)


def test_other_files(browser, made, tmp_path):
    _, file = made
    html = file.read_text(encoding="utf-8")
    data = json.loads(re.findall(r'id="data">([^<]*)<', html)[0])
    files = {
        "old.html": (
            re.sub(' data-sum="[0-9]+"', "", html).replace('"format":1,"by":"', '"format":7,"by":"\\u003cb>'),
            "it has format 7 (made by <b>otformer",
        ),
        "none.html": ("<p>hello</p>", "this is no page of attention that otformer wrote"),
        "cut.json": (json.dumps(data)[:-9], "this is no page of attention that otformer wrote"),
        "short.json": (json.dumps(data | {"layers": 3}), "its data are damaged"),
        "empty.json": (json.dumps(data | {"pairs": []}), "its data are damaged"),
        "fields.json": (json.dumps(data | {"pairs": [{"source": ["a"], "target": ["b"]}]}), "its data are damaged"),
        "bad.json": (json.dumps(data | {"pairs": [{"source": 1}]}), "its data are damaged"),
    }
    browser.open(file)
    before = text(browser, "numbers")
    opened = browser.driver.find_element("css selector", "#file")
    for name, (content, message) in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        opened.send_keys(str(tmp_path / name))
        said = browser.js(
            "await new Promise(done => setTimeout(done, 100)); return document.getElementById('message').textContent"
        )
        assert said.startswith(f"{name} cannot be shown: {message}")
        assert text(browser, "numbers") == before
    (tmp_path / "good.json").write_text(json.dumps(data | {"model": "another"}), encoding="utf-8")
    opened.send_keys(str(tmp_path / "good.json"))
    assert (
        browser.js("await new Promise(done => setTimeout(done, 100)); return document.getElementById('message').textContent")
        == ""
    )
    assert text(browser, "model") == "another"
    (tmp_path / "old.html").rename(tmp_path / "alone.html")
    browser.open(tmp_path / "alone.html")
    assert text(browser, "message").startswith("This page cannot be shown: it has format 7")
    quiet(browser)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_looks(browser, made, width, dark):
    _, file = made
    browser.open(file, width=width, dark=dark)
    assert not browser.wide()
    browser.js("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.faults() == []
    quiet(browser)


@pytest.mark.parametrize("share", [0.9, 0.5])
def test_a_page_that_is_cut_short_says_so(browser, made, tmp_path, share):
    whole = made[1].read_bytes()
    (tmp_path / "cut.html").write_bytes(whole[: int(share * len(whole))])
    browser.open(tmp_path / "cut.html")
    assert "the file is cut short or its script may not run" in text(browser, "message")
    quiet(browser)


def test_a_page_whose_data_were_changed_says_so_and_draws_nothing(browser, made, tmp_path):
    html = made[1].read_text(encoding="utf-8")
    packed = re.search(r'"attention":\["([^"]+)"', html)
    assert packed is not None
    place = packed.start(1) + 8
    changed = html[:place] + ("AAAA" if html[place : place + 4] != "AAAA" else "BBBB") + html[place + 4 :]
    (tmp_path / "changed.html").write_text(changed, encoding="utf-8")
    browser.open(tmp_path / "changed.html")
    said = "cannot be shown: its data are damaged: copy or make the file again."
    assert text(browser, "message") == f"This page {said}"
    assert text(browser, "numbers") == ""
    browser.open(made[1])
    assert text(browser, "message") == ""
    browser.driver.find_element("css selector", "#file").send_keys(str(tmp_path / "changed.html"))
    browser.js("await new Promise(done => setTimeout(done, 100))")
    assert text(browser, "message") == f"changed.html {said}"
    quiet(browser)
