"""Run the notebooks and store what they print and draw: ``python docs/notebooks/make.py [names]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

PLACE = Path(__file__).parent


def run(path: Path) -> Any:
    """The notebook, run from its first cell to its last in a process of its own; a cell that fails is an error."""
    notebook = nbformat.read(path, as_version=4)
    sockets = Config({"KernelManager": {"transport": "ipc"}})  # files of this user, no ports
    NotebookClient(notebook, config=sockets, timeout=120, kernel_name="python3").execute()
    notebook.metadata.pop("language_info", None)
    for cell in notebook.cells:
        cell.metadata.clear()  # when it ran
        if cell.cell_type == "code":  # warnings of the machine it ran on are not the reader's
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    return notebook


def printed(notebook: Any) -> list[str]:
    """What each cell has printed."""
    return ["".join(out.text for out in cell.get("outputs", []) if out.output_type == "stream") for cell in notebook.cells]


if __name__ == "__main__":
    chosen = [PLACE / f"{name}.ipynb" for name in sys.argv[1:]] or sorted(PLACE.glob("*.ipynb"))
    for path in chosen:
        path.write_text(nbformat.writes(run(path)) + "\n", "utf-8")
