"""Draw every picture of the gallery anew, and write its page: ``python docs/gallery/make.py [NAME …]``."""

from __future__ import annotations

import ast
import os
import runpy
import sys
from pathlib import Path
from typing import NamedTuple

PLACE = Path(__file__).parent
SCRIPTS = sorted(path for path in PLACE.glob("*.py") if path.name != Path(__file__).name)
SUBJECTS = {
    "The network": "attention_becomes_plan residual_stream same_weights schedules one_reg_is_slow linear_rate branch_point",
    "Plans": "two_rings certificate regularisation distances partial outliers labels sink",
    "Maps and shapes": "interpolation barycenter colours adaptation gradient_flow",
    "Sorting, training, words": "sorting soft_ranks trained_sorts words",
}


class Program(NamedTuple):
    """What a page shows of a script."""

    name: str
    title: str
    text: str
    code: str


def program(script: Path) -> Program:
    """Read a script: title and text are its docstring, the code is the rest."""
    code = script.read_text("utf-8")
    title, text = (ast.get_docstring(ast.parse(code)) or "").split("\n\n", 1)
    return Program(script.stem, title.rstrip("."), text, code.split('"""', 2)[2].strip())


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
    """The page of the gallery: of every script its picture and title, which lead to the program."""
    parts = [
        "# Gallery",
        "Short programs that draw a picture each and assert what it shows. Click a picture for its program. Save the\n"
        "program and run it: the picture appears beside it. The tests run all programs. `python docs/gallery/make.py`\n"
        "draws the pictures again and writes this page.",
    ]
    for subject, names in SUBJECTS.items():
        shown = [program(PLACE / f"{name}.py") for name in names.split()]
        items = [f"- [![]({each.name}.png) {each.title}]({each.name}.py)" for each in shown]
        parts += [f"## {subject}", '<div class="gallery" markdown>', "\n".join(items), "</div>"]
    return "\n\n".join(parts) + "\n"


def program_page(script: Path) -> str:
    """The page of one script: its picture, text and code."""
    name, title, text, code = program(script)
    return f"# {title}\n\n{text}\n\n![{title}]({name}.png)\n\n```py\n{code}\n```\n\n[All pictures](index.md)\n"


if __name__ == "__main__":
    os.chdir(PLACE)
    for script in SCRIPTS:
        if script.stem in sys.argv[1:] or not sys.argv[1:]:
            draw(script)
    (PLACE / "index.md").write_text(page(), "utf-8")
