"""A page of the site for every program of the gallery; links to a program lead to its page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PLACE = Path(__file__).parents[1] / "gallery"
MAKE = runpy.run_path(str(PLACE / "make.py"))
NAMES = "|".join(script.stem for script in MAKE["SCRIPTS"])
PROGRAM = re.compile(rf"\]\((?P<path>(?:[\w./]*gallery/)?(?:{NAMES}))\.py\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for script in MAKE["SCRIPTS"]:
        made = File.generated(config, f"gallery/{script.stem}.md", content=MAKE["program_page"](script))
        made.inclusion = made.inclusion.NOT_IN_NAV
        files.append(made)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    return markdown if page.file.src_uri.startswith("source/") else PROGRAM.sub(r"](\g<path>.md)", markdown)
