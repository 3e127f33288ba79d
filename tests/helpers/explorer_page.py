"""What the tests of the explorer do with its page: wait, choose, drag, read."""

from __future__ import annotations

import time

from helpers.browser import Browser

STILL = "#layer=5"  # a link: no figure starts by itself


def wait(browser: Browser, condition: str, seconds: float = 60) -> None:
    """Until an expression is true."""
    end = time.monotonic() + seconds
    while not browser.js(f"return Boolean({condition})"):
        assert time.monotonic() < end, f"{condition} did not become true; {browser.complaints()}"
        time.sleep(0.05)


def settle(browser: Browser) -> None:
    """Until everything in view is computed and drawn."""
    browser.js("for (let k = 0; k < 2; k++) await new Promise(requestAnimationFrame)")
    wait(browser, "explorer.sections.some(each => each.visible) && !explorer.frame && !explorer._more")


def go(browser: Browser, section: str) -> None:
    browser.js("document.getElementById(arguments[0]).scrollIntoView()", section)
    settle(browser)


def choose(browser: Browser, name: str, value: object) -> None:
    """Set a control as a user does, with its event."""
    browser.js(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event(e.type === 'range' ? 'input' : 'change', {bubbles: true}))",
        name,
        value,
    )
    settle(browser)


def state(browser: Browser, name: str) -> object:
    return browser.js("return explorer.state[arguments[0]]", name)


def text(browser: Browser, name: str) -> str:
    return browser.js("return document.getElementById(arguments[0]).textContent", name)


def ink(browser: Browser, canvas: str) -> str:
    """The picture on a canvas."""
    return browser.js("return document.getElementById(arguments[0]).toDataURL()", canvas)


def drag(browser: Browser, moves: int) -> None:
    """Take the first x and draw it along, a move in each frame; window.dragged: what frames took, window.shown: when."""
    browser.js(
        """const c = document.getElementById('play-points'), box = c.getBoundingClientRect();
        c.setPointerCapture = () => {};
        const w = c.clientWidth, h = c.clientHeight, [x] = explorer.points.x, size = Math.min(w, h) - 36;
        const at = explorer.problem.dim === 1 ? [18 + (w - 36) * x[0], h * 0.2]
          : [(w - size) / 2 + size * x[0], (h - size) / 2 + size * (1 - x[1])];
        const send = (type, dx) => c.dispatchEvent(new PointerEvent(type, {pointerId: 1, bubbles: true,
          clientX: box.left + at[0] + dx, clientY: box.top + at[1]}));
        send('pointerdown', 0); explorer.times.length = 0;
        window.shown = [];
        for (let k = 1; k <= arguments[0]; k++) {
          send('pointermove', k);
          window.shown.push(await new Promise(requestAnimationFrame));
        }
        window.dragged = [...explorer.times];
        send('pointerup', arguments[0]);""",
        moves,
    )
