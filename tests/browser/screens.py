"""Pictures of the trace page, a result's page, the probe page and the report for the docs.

python tests/browser/screens.py [trace] [result] [probe] [report]    writes docs/screens/NAME-WIDTH-light.png and -dark.png

``report`` takes report/index.html, which `make report` makes; explorer_screens.py has the explorer's.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from PIL import Image

import otformer as of
from helpers.browser import Browser

ROOT = Path(__file__).parents[2]
OUT = ROOT / "docs" / "screens"
FOX = "The quick brown fox jumps over the lazy dog ||| Le renard brun rapide saute par-dessus le chien paresseux"


def trace(folder: Path) -> Path:
    x, y = torch.rand(2, 12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    of.AligningTransformer(2, 0.02, 600)(x, y).save(folder / "trace.html")
    return folder / "trace.html"


def result(folder: Path) -> Path:
    x, y = torch.rand(2, 40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    of.solve_sample(x, y, reg=0.005).save(folder / "result.html")
    return folder / "result.html"


def probe(folder: Path) -> Path:
    return of.words.show("en-fr", [FOX]).save(folder / "probe.html")


def report(_: Path) -> Path:
    return ROOT / "report" / "index.html"


PAGES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "trace": (trace, "#layer=40"), "result": (result, ""), "probe": (probe, "#layer=5"), "report": (report, ""),
}  # fmt: skip


def main(names: list[str]) -> None:
    browser = Browser()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            make, fragment = PAGES[name]
            page = make(Path(folder))
            for width in (1280, 390):
                for scheme in ("light", "dark"):
                    browser.open(page, fragment, width=width, height=1480, dark=scheme == "dark")
                    browser.js("await new Promise(done => setTimeout(done, 500))")
                    out = OUT / f"{name}-{width}-{scheme}.png"
                    browser.picture(out)
                    with Image.open(out) as picture:
                        picture.convert("RGB").quantize(256).save(out, optimize=True)
    browser.close()


if __name__ == "__main__":
    main(sys.argv[1:] or list(PAGES))
