"""The trace page in a real browser, from file:// and offline: its numbers, its controls, its links, its looks."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import otformer as of
from helpers.browser import Browser
from oracles import uniform
from otformer.words.aligning import Alignment

WHERE = "return document.getElementById('where').textContent"
PIXELS = "return document.getElementById('rows').toDataURL()"


@pytest.fixture(scope="module")
def trace():
    return of.AligningTransformer(2, 0.05, 150)(*uniform(0, 2, 9, 2))


@pytest.fixture(scope="module")
def page(trace, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "trace.html"
    trace.save(path)
    return path


def quiet(browser: Browser) -> None:
    assert (browser.complaints(), browser.requests(), browser.wide()) == ([], [], False)


def test_the_page_computes_the_networks_attention(browser, page, trace):
    browser.open(page, "#layer=0")
    for layer in (0, 1, 40, 150):
        for head in ("rows", "columns"):
            found = np.array(browser.js(f"return [...attention('{head}', {layer})]")).reshape(9, 9)
            expected = trace.attention(layer, head).numpy()
            assert np.abs(found - (expected if head == "rows" else expected.T)).max() < 1e-12
    quiet(browser)


def test_slider_keys_and_play_change_what_is_drawn(browser, page):
    browser.open(page, "#layer=0")
    assert browser.js(WHERE).startswith("layer 0 of 150, λ = 0.0500, marginal error ")
    first = browser.js(PIXELS)
    browser.js("const s = document.getElementById('slider'); s.value = 30; s.dispatchEvent(new Event('input'))")
    assert browser.js(WHERE).startswith("layer 30 of 150")
    assert browser.js(PIXELS) != first
    browser.press("ARROW_RIGHT", "ARROW_RIGHT", "ARROW_LEFT")
    assert browser.js(WHERE).startswith("layer 31 ")
    browser.press("END")
    assert browser.js(WHERE).startswith("layer 150 ")
    browser.press("HOME")
    browser.click("#play")
    time.sleep(0.6)
    browser.click("#play")
    where = browser.js(WHERE)
    assert not where.startswith("layer 0 ")
    time.sleep(0.4)
    assert browser.js(WHERE) == where  # it has stopped
    quiet(browser)


def test_it_begins_to_play_by_itself_unless_motion_is_not_wanted(browser, page):
    browser.open(page)
    time.sleep(0.6)
    assert not browser.js(WHERE).startswith("layer 0 ")
    quiet(browser)
    calm = {"name": "prefers-reduced-motion", "value": "reduce"}
    browser.cdp("Emulation.setEmulatedMedia", features=[calm])
    browser.driver.get(page.as_uri() + "?again")
    time.sleep(0.6)
    assert browser.js(WHERE).startswith("layer 0 ")


def test_a_link_opens_its_layer_and_the_address_follows(browser, page):
    browser.open(page, "#layer=40")
    assert browser.js(WHERE).startswith("layer 40 ")
    browser.press("ARROW_RIGHT")
    time.sleep(0.5)
    assert browser.js("return location.hash") == "#layer=41"
    browser.js("location.hash = '#layer=7'; await new Promise(r => setTimeout(r, 100))")
    assert browser.js(WHERE).startswith("layer 7 ")
    quiet(browser)


@pytest.mark.parametrize(
    "link", ["#layer=9999", "#layer=<img src=x onerror=alert(1)>", "#layer=-3", "#problem=5", "#%E0%A4%A"]
)
def test_a_damaged_link_is_told_and_the_page_works(browser, page, link):
    browser.open(page, link)
    told = browser.js("return document.getElementById('told').textContent")
    assert ("the link names" in told) == ("=" in link)
    browser.press("END")
    assert browser.js(WHERE).startswith("layer 150 ")
    assert browser.js("return document.images.length") == 0
    quiet(browser)


def test_cells_and_registers_say_their_numbers(browser, page, trace):
    browser.open(page, "#layer=12")
    browser.js(
        "const c = document.getElementById('rows'), b = layout('rows'), r = c.getBoundingClientRect();"
        "const at = {clientX: r.x + b.x + 2.5 * b.cell[0], clientY: r.y + b.y + 1.5 * b.cell[1]};"
        "c.dispatchEvent(new MouseEvent('mousemove', at))"
    )
    note = browser.js("return document.getElementById('rows-note').textContent")
    assert note.startswith(f"x 2, y 3: {float(trace.attention(12)[1, 2]):.5f}, goal ")
    u, v = (t.numpy() for t in trace.potentials(12))
    row = browser.js("return [...document.getElementById('registers').rows[4].cells].map(c => c.textContent)")
    names = browser.js("return [...document.querySelectorAll('#names th')].map(c => c.textContent)")
    shown = dict(zip(names, row, strict=True))
    for name, value in (("u", u[4]), ("v", v[4])):
        assert float(shown[name].replace("−", "-")) == pytest.approx(value, rel=1e-3)
    assert shown[""] == "token 5"


def test_labels_batches_and_one_layer(browser, tmp_path):
    x, y = [uniform(0, 2, 2), uniform(1, 3, 2)], [uniform(2, 2, 2), uniform(3, 4, 2)]
    labels = [(["a", "<b>b</b>"], ["c", "</script>"]), (["x", "y", "z"], ["1", "2", "3", "4"])]
    net = of.AligningTransformer(2, 0.1, 20)
    net(x, y, warn=False).save(tmp_path / "batch.html", labels=labels)
    browser.open(tmp_path / "batch.html", "#layer=5&problem=2")
    assert browser.js("return [now().n, now().m, name(0, 2)]") == [3, 4, "x 3 (z)"]
    browser.js("const s = document.getElementById('problem'); s.value = 0; s.dispatchEvent(new Event('change'))")
    assert browser.js("return [now().n, now().m, name(1, 1)]") == [2, 2, "y 2 (</script>)"]
    quiet(browser)
    net(x[0], y[0], warn=False, keep="last").save(tmp_path / "last.html")
    browser.open(tmp_path / "last.html")
    assert "only the last layer was kept" in browser.js("return document.body.innerText")
    assert browser.js("return document.getElementById('play').disabled")
    quiet(browser)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_grave_for_screen_readers_at_any_size(browser, page, tmp_path, width, dark):
    browser.open(page, "#layer=40", width=width, dark=dark)
    quiet(browser)
    assert browser.faults() == []
    of.solve(np.eye(3), reg=0.1).save(tmp_path / "r.html")
    Alignment({(0, 0): 0.5}, ["cat", "and"], ["chat"], np.ones((1, 2), "f4")).save(tmp_path / "a.html")
    for name in ("r.html", "a.html"):
        browser.open(tmp_path / name, width=width, dark=dark)
        quiet(browser)
        assert browser.faults() == []


def test_what_is_shown_is_saved_as_a_png(browser, page):
    browser.open(page, "#layer=40")
    size = browser.js("const c = picture(); return [c.width, c.height, c.toDataURL().slice(0, 22)]")
    shown = browser.js("return ['rows', 'goal'].map(id => document.getElementById(id).clientWidth)")
    assert size[0] >= sum(shown)
    assert size[1] > 600
    assert size[2] == "data:image/png;base64,"
    same = """const c = picture(), own = document.getElementById('rows'), g = c.getContext('2d');
    const read = (g, x, y) => g.getImageData(x, y, own.width, own.height).data;
    const a = read(g, 16, 34 + 16 + 22), b = read(own.getContext('2d'), 0, 0);
    let off = 0, drawn = 0;
    for (let k = 0; k < b.length; k += 4) if (b[k + 3] === 255) { drawn++; off += Math.abs(a[k] - b[k]); }
    return [drawn, off];"""
    drawn, off = browser.js(same)
    assert drawn > 1000
    assert off == 0
    browser.click("#save")
    for _ in range(50):
        if browser.js("return document.getElementById('told').textContent"):
            break
        time.sleep(0.1)
    assert browser.js("return document.getElementById('told').textContent") == "saved as layer-40.png"
    quiet(browser)
