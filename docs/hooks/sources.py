"""Links that leave docs/ lead to a page of the site with that file's text, so that the site needs no repository beside it.

A page of docs/ says ``](../src/otformer/nn.py)``, which is right for whoever reads the checkout. The site has no such file;
here every file linked so becomes the page ``source/src/otformer/nn.py``, and the link leads there. Links to notebooks lead
to the pages that hooks/notebooks.py makes of them.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)]*)?\)")
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"  # whoever searches wants pages, not files that mention a word
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".html": "html", ".js": "js", ".v": "coq"}


def in_repository(page: str, link: str) -> str:
    """The path from the root of the repository of what a page of docs/ links to."""
    return posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))


def source_page(path: str) -> str:
    """The page of the site that shows this file: ``source/src/otformer/nn.py.md``."""
    return f"source/{path}.md"


def shown(path: str) -> str:
    """The text of that page."""
    text = (ROOT / path).read_text("utf-8")
    if path.endswith(".md"):  # as prose; its own links would lead nowhere here
        return LINK.sub("]", text).replace("![", "[")
    fence = "`" * (1 + max((len(ticks) for ticks in re.findall("`{3,}", text)), default=2))
    return f"# {Path(path).name}\n\n`{path}`\n\n{fence}{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}\n{fence}\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside docs/ that a page links to."""
    outside = set()
    for page in files.documentation_pages():
        for link in LINK.finditer(page.content_string):
            path = in_repository(page.src_uri, link["path"])
            if not path.startswith("docs/") and (ROOT / path).is_file():
                outside.add(path)
    for path in sorted(outside):
        made = File.generated(config, source_page(path), content=UNSEARCHED + shown(path))
        made.inclusion = made.inclusion.NOT_IN_NAV
        files.append(made)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of a page to the pages made above."""
    here = page.file.src_uri

    def inside(link: re.Match[str]) -> str:
        path = in_repository(here, link["path"])
        target = source_page(path)
        if path.startswith("docs/") and path.endswith(".ipynb"):
            target = path.removeprefix("docs/").removesuffix(".ipynb") + ".md"
        if files.get_file_from_path(target) is None:
            return link[0]
        return f"]({os.path.relpath(target, posixpath.dirname(here) or '.')}{link['anchor'] or ''})"

    return markdown if here.startswith("source/") else LINK.sub(inside, markdown)
