"""The explorer in a real Chromium, from disk and offline: every control, keys, links, speed, a screen reader's view."""

from __future__ import annotations

import re
import time
from pathlib import Path
from statistics import median

import pytest

from browser.frames import frames
from helpers.browser import Browser
from helpers.explorer_page import STILL, choose, drag, go, ink, settle, state, text, wait
from otformer.explorer.page import LARGEST, write_page

pytestmark = pytest.mark.slow
FRAME = 1000 / 30  # milliseconds


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return write_page(tmp_path_factory.mktemp("explorer") / "explore.html")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_the_page_is_quiet_narrow_and_open_to_all(browser: Browser, page: Path, width: int, dark: bool) -> None:
    assert page.stat().st_size < LARGEST
    browser.open(page, width=width, dark=dark)
    for section in ("play", "number", "same", "break", "learned", "words"):
        go(browser, section) if section == "number" else browser.js(f"document.getElementById('{section}').scrollIntoView()")
        browser.js("await new Promise(done => setTimeout(done, 100))")
    assert browser.js("return document.documentElement.hasAttribute('data-dark')") is dark
    assert (browser.complaints(), browser.requests(), browser.wide(), browser.faults()) == ([], [], False, [])


def test_figures_play_by_themselves_until_they_are_stopped(browser: Browser, page: Path) -> None:
    browser.open(page)
    wait(browser, "explorer.state.layer > 3")
    browser.click("#play-player .play")
    at = state(browser, "layer")
    time.sleep(0.3)
    assert state(browser, "layer") == at
    browser.js("document.getElementById('same').scrollIntoView()")
    wait(browser, "explorer.state.many > 7")


def test_the_layer_moves_by_slider_buttons_and_keys_and_the_matrix_with_it(browser: Browser, page: Path) -> None:
    browser.open(page, STILL)
    settle(browser)
    seen = {ink(browser, "play-matrix")}
    for action, layer in (
        (lambda: browser.click("#play-player .on"), 6),
        (lambda: browser.click("#play-player .back"), 5),
        (lambda: browser.js("document.activeElement.blur()") or browser.press("ARROW_RIGHT"), 6),
        (lambda: browser.press("END"), 300),
        (lambda: browser.press("HOME"), 0),
    ):
        action()
        settle(browser)
        assert state(browser, "layer") == layer
        seen.add(ink(browser, "play-matrix"))
    assert len(seen) == 4
    browser.press("SPACE")
    wait(browser, "explorer.state.layer > 2")
    browser.press("SPACE")
    assert text(browser, "play-player").startswith("Play")


def test_every_setting_changes_what_is_shown(browser: Browser, page: Path) -> None:
    browser.open(page, "#layer=30&depth=60")
    settle(browser)
    for name, value in (
        *(("schedule", each) for each in ("paper", "gradient", "alternating", "relaxed")),
        *(("sink", "token"), ("show", "plan"), ("reg", "-1"), ("n", "7"), ("mode", "plane"), ("n", "40"), ("mode", "words")),
    ):
        before = ink(browser, "play-matrix")
        choose(browser, name, value)
        assert ink(browser, "play-matrix") != before, (name, value)
    assert browser.js("return [explorer.problem.n, explorer.problem.m, explorer.problem.dim]") == [9, 9, 56]
    choose(browser, "depth", "200")
    assert state(browser, "depth") == 200
    assert browser.complaints() == []


def test_presets_give_what_they_name(browser: Browser, page: Path) -> None:
    browser.open(page, STILL)
    names = browser.js("return [...document.getElementById('preset').options].map(o => o.value).slice(1)")
    for name in names:
        browser.js("const e = document.getElementById('preset'); e.value = arguments[0]; e.onchange()", name)
        browser.js("await new Promise(requestAnimationFrame)")
        assert browser.js("return document.getElementById('preset').value") == name
    assert len(names) == 8
    assert browser.complaints() == []
    choose(browser, "preset", "two points, slow but for annealed")
    browser.js("explorer.set({layer: 600})")
    settle(browser)
    slow = browser.js("return explorer.error")
    choose(browser, "schedule", "annealed")
    assert slow > 100 * browser.js("return explorer.error")


def test_a_typed_list_is_sorted(browser: Browser, page: Path) -> None:
    browser.open(page, STILL)
    browser.type("#list", "30 -10 20 7")
    browser.press("ENTER")
    browser.js("explorer.set({layer: 150})")
    settle(browser)
    assert "scaled to [0, 1]" in text(browser, "schedule-note")
    rows = browser.js("const A = explorer.matrix; return [0,1,2,3].map(i => [...A.slice(4*i, 4*i+4)])")
    assert [row.index(max(row)) for row in rows] == [3, 0, 2, 1]


def test_a_link_restores_everything(browser: Browser, page: Path) -> None:
    browser.open(page, STILL)
    browser.js(
        "explorer.set({mode: 'plane', n: 9, seed: 3, list: '', schedule: 'relaxed', reg: 0.03, sink: 'token', depth: 80,"
        "layer: 33, show: 'plan', head: 'columns', i: 2, j: 4, broken: 'sink,head', step: 2, brokenLayer: 20, many: 17,"
        "learned: 9, pair: 3,"
        "reading: 'cross-input', attentionLayer: 4, attentionHead: '2', theme: 'dark'})"
    )
    browser.js("await new Promise(done => setTimeout(done, 400))")
    wanted = browser.js("return [explorer.state, [...explorer.matrix], location.hash]")
    browser.open(page, wanted[2])
    settle(browser)
    assert browser.js("return [explorer.state, [...explorer.matrix], location.hash]") == wanted
    assert text(browser, "message") == ""


def test_points_are_dragged_and_moved_by_keys(browser: Browser, page: Path) -> None:
    for fragment in ("#layer=20", "#layer=20&mode=plane&list="):
        browser.open(page, fragment)
        settle(browser)
        before = browser.js("return [explorer.points.x[0], [...explorer.matrix]]")
        drag(browser, 30)
        settle(browser)
        after = browser.js("return [explorer.points.x[0], [...explorer.matrix]]")
        assert after[0][0] > before[0][0] + 0.02
        assert after[1] != before[1]
        assert "x=" in browser.js("await new Promise(done => setTimeout(done, 300)); return location.hash")
    browser.js("document.getElementById('play-points').focus()")
    browser.press("n", "n", "ARROW_UP")
    settle(browser)
    assert re.fullmatch(r"x \d+ at \d\.\d\d, \d\.\d\d", text(browser, "message"))


def test_200_points_are_dragged_at_30_frames_a_second(browser: Browser, page: Path) -> None:
    times, rate = frames(browser, page, 200)
    print(f"one frame of 200 points takes {median(times):.1f} ms; {rate:.0f} frames per second")
    assert len(times) > 100
    assert median(times) < FRAME
    settle(browser)
    assert browser.js("return explorer.shown") == 60  # the rest of the layers follows


def number(said: str) -> float:
    return float(said.replace("−", "-"))


PLANE = "#mode=plane&n=6&list=&i=1&j=2&schedule=gradient&layer=9"


@pytest.mark.parametrize("fragment", ["#layer=20", "#layer=21&head=columns&i=2&j=5", PLANE])
def test_a_number_is_followed_and_adds_up(browser: Browser, page: Path, fragment: str) -> None:
    browser.open(page, fragment)
    go(browser, "number")
    products = browser.js("return [...document.querySelectorAll('#terms tbody tr')].map(r => r.lastChild.textContent)")
    total = browser.js("return document.querySelector('#terms tfoot td:last-child').textContent")
    assert sum(map(number, products)) == pytest.approx(number(total), abs=1e-5)
    said = text(browser, "follow")
    if "other head" not in said:
        new, there = (re.search(pattern, said)[1] for pattern in (r"= ([−\d.]+)\.In the next", r"memory stands ([−\d.]+)\."))
        assert new == there
    browser.js("document.querySelector('#weights button').focus()")
    assert "makes the term 2 x·y" in text(browser, "weights-note")


def test_a_click_on_the_matrix_chooses_the_number(browser: Browser, page: Path) -> None:
    browser.open(page, STILL)
    go(browser, "play")
    browser.click("#play-matrix")
    settle(browser)
    assert [state(browser, "i"), state(browser, "j")] != [3, 11]
    choose(browser, "cell-i", "99")
    assert "from 1 to 12" in text(browser, "message")


def test_the_weights_stay_while_n_moves_but_not_with_the_papers_step(browser: Browser, page: Path) -> None:
    browser.open(page, STILL)
    go(browser, "same")
    sums = {}
    for schedule in ("annealed", "paper"):
        choose(browser, "sorter", schedule)
        for n in (5, 60, 200):
            browser.js("explorer.set({many: arguments[0]})", n)
            settle(browser)
            if schedule == "annealed":
                assert f"{n} of {n} numbers in their place after 288 layers" in text(browser, "same-note")
            sums[schedule, n] = re.search(r"checksum (\w+)", text(browser, "same-weights-note"))[1]
    assert [len({sums[schedule, n] for n in (5, 60, 200)}) for schedule in ("annealed", "paper")] == [1, 3]


def test_switches_break_what_they_name(browser: Browser, page: Path) -> None:
    browser.open(page, "#schedule=gradient&reg=0.1&depth=400&broken=&brokenLayer=400")
    go(browser, "break")
    assert text(browser, "break-verdict") == "Nothing is broken: turn a switch, or edit the prompt."
    harmless = {"sink", "index", "squares"}
    for name in ("sign", "sink", "index", "identity", "head", "squares"):
        browser.js("explorer.set({broken: ''})")
        settle(browser)
        browser.js("document.getElementById('switch-' + arguments[0]).click()", name)
        wait(browser, "document.getElementById('break-verdict').textContent.startsWith('After')")
        settle(browser)
        said = text(browser, "break-verdict")
        assert ("converges all the same" in said) == (name in harmless), (name, said)
    browser.js("explorer.set({broken: '', mode: 'plane', n: 8, list: ''})")
    browser.js("document.getElementById('switch-index').click()")
    settle(browser)
    assert "wrong place" in text(browser, "break-verdict")
    assert browser.js("return document.getElementById('switch-identity').disabled")
    browser.js("explorer.set({broken: ''})")
    choose(browser, "switch-step", "2")  # γ = 2λ, both heads: the attention converges and the marginals do not
    assert "converges all the same" in text(browser, "break-verdict")
    assert float(re.search(r"marginal error is ([\d.e-]+) ", text(browser, "break-verdict"))[1]) > 0.1


def edit(browser: Browser, register: str, operation: str, **given: object) -> str:
    """Edit the prompt as a user does; what the verdict then says."""
    for name, value in {"register": register, "operation": operation, **given}.items():
        choose(browser, f"edit-{name}", value)
    browser.click("#edit-apply")
    settle(browser)
    return text(browser, "break-verdict")


def test_the_prompt_is_edited_and_the_link_holds_it(browser: Browser, page: Path) -> None:
    browser.open(page, "#schedule=relaxed&reg=0.05&depth=300&brokenLayer=300")
    go(browser, "break")
    assert "converges all the same" in edit(browser, "x_sq", "blank")
    assert text(browser, "message") == "The switches are off, so that the edit is seen alone."
    assert (state(browser, "broken"), state(browser, "edits")) == ("", "x_sq:blank")
    assert "is as in the whole network" in edit(browser, "y", "times", amount="-2")
    assert text(browser, "edit-list") == "Edited: x_sq blanked; y times -2."
    browser.js("explorer.address()")
    assert "edits=x_sq%3Ablank%2Cy%3Atimes%3A-2" in browser.js("return location.hash")
    browser.click("#edit-undo")
    settle(browser)
    assert state(browser, "edits") == "x_sq:blank"
    browser.click("#edit-clear")
    settle(browser)
    assert text(browser, "break-verdict") == "Nothing is broken: turn a switch, or edit the prompt."
    assert text(browser, "edit-list") == "Not edited."
    assert browser.js("return document.getElementById('edit-undo').disabled")
    choose(browser, "edit-register", "x")
    choose(browser, "edit-operation", "copy")
    assert browser.js("return [...document.getElementById('edit-target').options].filter(o => !o.disabled).length") == 2
    before = text(browser, "break-verdict")
    edit(browser, "u", "plus", amount="1000")
    assert text(browser, "message") == "Not used: the edit expects a number from −100 to 100."
    assert (text(browser, "break-verdict"), state(browser, "edits")) == (before, "")
    assert (browser.complaints(), browser.faults()) == ([], [])


def test_trained_networks_are_shown_layer_by_layer(browser: Browser, page: Path) -> None:
    browser.open(page, STILL)
    go(browser, "learned")
    seen = set()
    for layer in (0, 10, 20):
        browser.js("explorer.set({learned: arguments[0]})", layer)
        settle(browser)
        seen.add(ink(browser, "learned-1") + ink(browser, "learned-2"))
        for k in range(3):
            assert re.search(rf"layer {layer}: \d+ of 12 rows right", text(browser, f"learned-{k}-note"))
    assert len(seen) == 3
    assert "12 of 12" in text(browser, "learned-1-note")


def test_words_change_with_pair_reading_layer_and_head(browser: Browser, page: Path) -> None:
    browser.open(page, STILL)
    go(browser, "words")
    seen = {ink(browser, "words-matrix")}
    for name, value in (("reading", "cross-input"), ("attention-head", "3"), ("pair", "2"), ("reading", "cross-output")):
        choose(browser, name, value)
        seen.add(ink(browser, "words-matrix"))
    browser.click("#words-player .on")
    settle(browser)
    seen.add(ink(browser, "words-matrix"))
    assert len(seen) == 6
    assert re.search(r"layer 2, head 3: \d+ of \d+ French words", text(browser, "words-note"))
    browser.js("document.getElementById('words-table').open = true; explorer.redraw()")
    settle(browser)
    assert "Pourriez-vous" in text(browser, "words-table")


def test_the_tour_has_seven_steps_and_ends(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.click("#tour-start")
    for k in range(1, 8):
        settle(browser)
        assert text(browser, "tour-text").startswith(f"{k} of 7.")
        assert browser.faults() == []
        browser.click("#tour-next")
    assert browser.js("return document.getElementById('tour').hidden")
    assert browser.complaints() == []


def test_colours_follow_the_switch_and_everything_can_be_reset(browser: Browser, page: Path) -> None:
    browser.open(page, STILL)
    choose(browser, "theme", "dark")
    assert browser.js("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    browser.click("#reset")
    settle(browser)
    assert browser.js("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.click("#share")
    wait(browser, "document.getElementById('message').textContent.startsWith('The link is')")
