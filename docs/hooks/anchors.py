"""Places that a link can name, whatever a heading says: ``theorems.html#theorem-a-1``, ``limits.html#theorem-d``,
``paper.html#claim-3``.

A theorem is a paragraph that begins with its name in bold, a section of theorems is a heading that begins with its letter,
and a claim is a row of a table that begins with its number. In paper.md our own claims are ``our-claim-1``, and the rows of
the last table ``correction-1``. Errata have their places in errata.md itself, so that they work on every reader of Markdown.
"""

from __future__ import annotations

import re

from mkdocs.structure.pages import Page

THEOREM = re.compile(r"<p><strong>Theorem (?P<name>[^<(]+?)\.?\s*(?:\([^<]*)?</strong>")
SECTION = re.compile(r'<h2 id="[^"]*">(?P<name>[A-Z]⁺?)\. ')
ROW = re.compile(r"<tr>\s*<td>(?P<number>\d+)</td>")
TABLES = {"the-papers-claims": "claim", "our-claims": "our-claim", "errata-by-subject": "correction"}  # heading -> its rows


def slug(name: str) -> str:
    """A name as part of an address.

    >>> slug("C, both heads"), slug("E⁺")
    ('c-both-heads', 'e-plus')
    """
    return re.sub(r"\W+", "-", name.lower().replace("⁺", "-plus")).strip("-")


def on_page_content(html: str, page: Page, **_: object) -> str:
    name = page.file.src_uri
    if name in ("theorems.md", "limits.md", "exactness.md"):
        return with_theorems(html)
    if name == "paper.md":
        for heading, kind in TABLES.items():
            before, found, table = html.partition(f'<h2 id="{heading}">')
            rows, end, after = table.partition("</table>")
            html = before + found + ROW.sub(rf'<tr id="{kind}-\g<number>"><td>\g<number></td>', rows) + end + after
    return html


def with_theorems(html: str) -> str:
    """Give every theorem, and every section that has a letter, a place; the first of a name keeps it."""
    seen: set[str] = set()

    def placed(found: re.Match[str]) -> str:
        address = f"theorem-{slug(found['name'])}"
        if address in seen:
            return found[0]
        seen.add(address)
        return f'<span id="{address}"></span>{found[0]}'

    return SECTION.sub(placed, THEOREM.sub(placed, html))
