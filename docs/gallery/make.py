"""Draw every picture of the gallery anew, and write its page: ``python docs/gallery/make.py``."""

from __future__ import annotations

import ast
import os
import runpy
from pathlib import Path

PLACE = Path(__file__).parent
SCRIPTS = sorted(path for path in PLACE.glob("*.py") if path.name != Path(__file__).name)


def draw(script: Path) -> None:
    """Run a script in the house style; its picture lies in the working folder then."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from otformer import figures

    with figures.applied(), matplotlib.rc_context({"savefig.dpi": 90}):
        runpy.run_path(str(script))
        pyplot.close("all")


def page() -> str:
    """The page of the gallery: of every script its title, picture, text and code."""
    parts = [
        "# Gallery",
        "Short programs, each with the picture it draws and what it asserts. Save one and run it: the picture appears\n"
        "beside it. The tests run them all; `python docs/gallery/make.py` draws the pictures anew and writes this page.",
    ]
    for script in SCRIPTS:
        code = script.read_text("utf-8")
        title, text = (ast.get_docstring(ast.parse(code)) or "").split("\n\n", 1)
        body = code.split('"""', 2)[2].strip()
        parts.append(f"## {title.rstrip('.')}\n\n{text}\n\n![{title}]({script.stem}.png)\n\n```py\n{body}\n```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    os.chdir(PLACE)
    for script in SCRIPTS:
        draw(script)
    (PLACE / "index.md").write_text(page(), "utf-8")
