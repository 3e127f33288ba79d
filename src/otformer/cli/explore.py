"""The command ``otformer explore``: a page in which the network runs live."""

from __future__ import annotations

import json
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from otformer.cli.common import Json, note


def explore(
    save: Annotated[Path | None, typer.Option(help="Write the page to this file, which must end in .html.")] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Write the page only, do not open a browser.")] = False,
    as_json: Json = False,
) -> None:
    """Open a page in which the aligning transformer runs live.

    Drag points, trace a number, break the network. The page is one file and works offline. Without --save it is
    written to a temporary folder.
    """
    from otformer.explorer.page import write_page

    file = write_page(save or Path(tempfile.mkdtemp(prefix="otformer-")) / "explore.html").resolve()
    opened = not no_open and webbrowser.open(file.as_uri())
    if not opened and not no_open:
        note("no browser could be started: open the file yourself")
    if as_json:
        typer.echo(json.dumps({"file": str(file), "bytes": file.stat().st_size, "opened": opened}))
    else:
        typer.echo(file)
