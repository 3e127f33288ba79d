"""A page of the site for every notebook, with the results that are stored in it."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def text_of(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)


def output(result: dict[str, Any]) -> str:
    """One result of a cell as markdown: a picture, a page of HTML, or text."""
    if result["output_type"] == "stream":
        return printed(COLOUR.sub("", text_of(result["text"])))
    data = result["data"]
    if "image/png" in data:
        picture = text_of(data["image/png"]).replace("\n", "")
        return f'<img alt="picture drawn by the cell above" src="data:image/png;base64,{picture}">\n'
    if "text/html" in data:
        return f"<div>{text_of(data['text/html'])}</div>\n"
    return printed(text_of(data["text/plain"]))


def printed(text: str) -> str:
    """Text that a cell has printed, which is no formula (hooks/formulas.py), whatever it holds."""
    return f'<pre class="printed"><code>{escape(text.rstrip())}</code></pre>\n'


def markdown(notebook: dict[str, Any]) -> str:
    """The notebook as one page."""
    parts = []
    for cell in notebook["cells"]:
        source = text_of(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source + "\n")
        else:
            parts += [f"```python\n{source}\n```\n", *map(output, cell["outputs"])]
    return "\n".join(parts)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        notebook = json.loads(Path(str(file.abs_src_path)).read_text("utf-8"))
        page = markdown(notebook) + f"\nThe notebook itself: [{Path(file.src_uri).name}](../{file.src_uri}){{ download }}\n"
        files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=page))
    return files
