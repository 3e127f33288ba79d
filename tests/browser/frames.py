"""How fast the explorer follows a point that is dragged among 200: ``python tests/browser/frames.py [n …]``.

Prints, for each n, the time that a frame takes (layers and drawing) and the frames per second that Chromium showed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.browser import Browser
from helpers.explorer_page import drag, settle
from otformer.explorer.page import write_page

MOVES = 120  # of the pointer, one a frame
PLACE = "#mode=plane&n={}&list=&reg=0.005&depth=60&layer=60"


def frames(browser: Browser, page: Path, n: int) -> tuple[list[float], float]:
    """Milliseconds of each frame, and frames per second."""
    browser.open(page, PLACE.format(n))
    settle(browser)
    drag(browser, MOVES)
    times, shown = browser.js("return [window.dragged, window.shown]")
    return times, 1000 * (len(shown) - 1) / (shown[-1] - shown[0])


def main(sizes: list[int]) -> None:
    browser = Browser()
    with tempfile.TemporaryDirectory() as folder:
        page = write_page(Path(folder) / "explore.html")
        for n in sizes:
            times, rate = frames(browser, page, n)
            slow = sorted(times)[-len(times) // 20]
            middle = statistics.median(times)
            print(f"n = {n}: a frame takes {middle:.1f} ms (95 % below {slow:.1f}); {rate:.0f} frames per second")
    browser.close()


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [200])
