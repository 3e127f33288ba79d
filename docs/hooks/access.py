"""What a screen reader needs and the theme does not give: a name for the dialog of the search."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
