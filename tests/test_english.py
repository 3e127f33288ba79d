"""What people read has no words of ours where English has known ones: english.toml lists them, and what to write instead."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
RULES = tomllib.loads((ROOT / "tests" / "english.toml").read_text("utf-8"))["avoid"]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class Place(NamedTuple):
    """A piece of text, and the line of a file on which it begins."""

    file: Path
    line: int
    text: str


def pages() -> list[Path]:
    """Everything in markdown that is written by hand."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "proofs" / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


def read(file: Path) -> Iterator[Place]:
    """The texts of one file: a page without its blocks of code, a notebook's cells, the strings of a program."""
    text = file.read_text("utf-8")
    if file.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield Place(file, node.lineno, node.value)
    elif file.suffix == ".ipynb":
        for cell in json.loads(text)["cells"]:
            if cell["cell_type"] == "markdown":
                yield Place(file, 1, "".join(cell["source"]))
    elif file.suffix == ".md":
        yield Place(file, 1, FENCED.sub(lambda block: "\n" * block[0].count("\n"), text))
    else:
        yield Place(file, 1, text)


def found(rule: dict, text: str) -> list[tuple[int, str]]:
    """Lines, counted from 0, and what stands there, without the phrases that are allowed."""
    hits = []
    for hit in re.finditer(rule["find"], text):
        around = text[max(0, hit.start() - 12) : hit.end() + 12]
        if not any(phrase in around for phrase in rule.get("allow", ())):
            hits.append((text.count("\n", 0, hit.start()), hit[0]))
    return hits


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["write"])
def test_every_rule_finds_its_example(rule: dict) -> None:
    assert found(rule, rule["example"])


def files() -> list[Path]:
    sources = [f for kind in ("py", "toml", "html", "js") for f in ROOT.glob(f"src/otformer/**/*.{kind}")]
    return [*pages(), *sorted(ROOT.glob("docs/notebooks/*.ipynb")), *sorted(sources)]


def test_what_people_read_has_known_words() -> None:
    wrong = []
    for file in files():
        for place in read(file):
            for rule in RULES:
                for line, hit in found(rule, place.text):
                    where = f"{file.relative_to(ROOT)}:{place.line + line}"
                    wrong.append(f"{where}: “{hit}”; rather: {rule['write']}")
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_blocks_of_code_are_not_read_and_lines_are_counted(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("one\n```\nattention that knows nothing\n```\nit knows nothing\n", "utf-8")
    (place,) = read(page)
    assert [line for line, _ in found(RULES[0], place.text)] == [4]
