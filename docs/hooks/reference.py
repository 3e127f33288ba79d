"""The reference: a line ``::: name`` of a page becomes the signature and the docstring of that public name.

Docstrings here are plain text in three shapes: paragraphs, sections in numpy's style, and lines ``name : what it is``.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

import otformer

ENTRY = re.compile(r"^::: (?P<name>[\w.]+)$", re.MULTILINE)
ARGUMENT = re.compile(r"^(?P<names>[\w*]+(?:, [\w*]+)*) : (?P<text>.*)$")
HEADING = re.compile(r"^(?P<title>[A-Z][a-z]+)\n-{3,}$", re.MULTILINE)


def public(name: str) -> Any:
    """What the package calls by this name, ``nn.Transport`` among them."""
    found: Any = otformer
    for part in name.split("."):
        found = getattr(found, part)
    return found


class Written(str):
    """An annotation as it stands in the source, without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def signature(name: str, thing: Any) -> str:
    """The call, with one argument a line where it is long; without ``self``, and what a class returns."""
    found = inspect.signature(thing)
    arguments = [
        argument.replace(annotation=Written(argument.annotation)) if isinstance(argument.annotation, str) else argument
        for argument in found.parameters.values()
        if argument.name != "self"
    ]
    returns = "" if inspect.isclass(thing) or found.return_annotation is found.empty else f" -> {found.return_annotation}"
    inner = str(inspect.Signature(arguments))[1:-1]
    if len(name + inner + returns) <= 100:
        return f"{name}({inner}){returns}"
    lines, star = [], False
    for argument in arguments:
        if argument.kind is argument.KEYWORD_ONLY and not star:
            lines, star = [*lines, "    *,"], True
        lines.append(f"    {argument},")
    return "\n".join([f"{name}(", *lines, f"){returns}"])


def paragraph(lines: list[str], typed: bool = False) -> str:
    """One block of a docstring as markdown: a session, a list of arguments, indented formulas, or prose.

    typed : it is a section in numpy's style, ``name : type`` with the text below it.
    """
    if lines[0].startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    if not ARGUMENT.match(lines[0]):
        return "\n".join(lines)
    items: list[str] = []
    for line in lines:
        if found := ARGUMENT.match(line):
            items.append(f"- **{found['names']}** : " + (f"*{found['text']}*<br>" if typed else found["text"]))
        elif line.startswith(" "):  # goes on, or is the text below a name in numpy's style
            items.append("  " + line.strip())
        else:  # several arguments that are as elsewhere
            items.append(f"- **{line}** :")
    return "\n".join(items)


def docstring(thing: Any) -> str:
    text = HEADING.sub(r"**\g<title>**\n", inspect.getdoc(thing) or "")
    blocks: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.split("\n")
        first = next((k for k, line in enumerate(lines) if line.startswith(">>>")), len(lines))
        typed = bool(blocks) and re.fullmatch(r"\*\*\w+\*\*", blocks[-1]) is not None
        blocks += [paragraph(part, typed) for part in (lines[:first], lines[first:]) if part]
    return "\n\n".join(blocks)


def methods(name: str, thing: Any) -> list[str]:
    """Entries for the methods and properties that a class defines in this package, documented ones only."""
    parts = []
    for member, found in inspect.getmembers_static(thing):
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", getattr(found, "func", found))
        ours = inspect.isfunction(function) and function.__module__.startswith("otformer")
        if member.startswith("_") or not (ours and function.__doc__):
            continue
        head = f"{name}.{member}"
        if not isinstance(found, property) and not hasattr(found, "func"):
            head = signature(head, function)
        parts.append(f"```python\n{head}\n```\n\n{docstring(function)}")
    return parts


def entry(name: str) -> str:
    """Heading, signature, docstring, and the methods of a class."""
    thing = public(name)
    short = name.split(".")[-1]
    parts = [f"## {short} {{ #{name} }}", f"```python\notformer.{signature(name, thing)}\n```", docstring(thing)]
    if inspect.isclass(thing):
        parts += methods(short, thing)
    return "\n\n".join(parts)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if not page.file.src_uri.startswith("reference/"):
        return markdown
    return ENTRY.sub(lambda found: entry(found["name"]), markdown)
