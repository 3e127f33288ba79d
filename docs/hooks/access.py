"""What readers need and the theme does not give: a name for the dialog of the search, and room for the widest table."""

from __future__ import annotations

from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

WIDE = "paper.md"  # a table of seven columns, which takes the place of the contents beside it


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    if page.file.src_uri == WIDE:
        page.meta["hide"] = ["toc"]
    return markdown


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
