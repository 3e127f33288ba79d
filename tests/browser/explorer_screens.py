"""Pictures of the explorer for the docs: ``python tests/browser/explorer_screens.py`` writes docs/screens/explore-*.png."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from PIL import Image

from helpers.browser import Browser
from otformer.explorer.page import write_page

OUT = Path(__file__).parents[2] / "docs" / "screens"
RINGS = "#mode=plane&n=24&list=&shape=rings&reg=0.01&depth=200&layer=130&i=0&j=0"
WORDS = "#mode=words&reg=0.05&list=&depth=300&layer=300&i=3&j=1"
# name, fragment, section, window, dark
SHOTS = (
    ("play-1280", "#layer=40", "play", 1280, False),
    ("rings-1280-dark", RINGS, "play", 1280, True),
    ("number-1280", "#layer=20", "number", 1280, False),
    ("break-1280-dark", "#brokenLayer=150", "break", 1280, True),
    ("learned-1280", "#learned=14", "learned", 1280, False),
    ("words-1280-dark", "#attentionLayer=3", "words", 1280, True),
    ("play-390", RINGS, "play", 390, False),
    ("sentences-390-dark", WORDS, "play", 390, True),
    ("words-390", "#attentionLayer=3", "words", 390, False),
    ("same-390-dark", "#many=60", "same", 390, True),
)


def main() -> None:
    browser = Browser()
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = write_page(Path(folder) / "explore.html")
        for name, fragment, section, width, dark in SHOTS:
            browser.open(page, fragment, width=width, height=1300 if width > 600 else 1500, dark=dark)
            browser.js(
                "document.getElementById(arguments[0]).scrollIntoView();"
                "do { await new Promise(done => setTimeout(done, 300)) } while (explorer.frame || explorer._more)",
                section,
            )
            browser.picture(OUT / f"explore-{name}.png")
            with Image.open(OUT / f"explore-{name}.png") as picture:
                picture.convert("RGB").quantize(256).save(OUT / f"explore-{name}.png", optimize=True)
    browser.close()


if __name__ == "__main__":
    main()
