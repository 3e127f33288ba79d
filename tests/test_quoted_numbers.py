"""A number that was measured is quoted in README and docs together with a command that prints it again.

Numbers that look measured (`MEASURED`) may stand in a section of a page only if that section, or one above it below the
page's title, names a command, a script, a test or an experiment in code, and what it names exists. Numbers in code blocks
are left to the tests that run those blocks (test_docs.py, test_site.py).
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from otformer.cli.main import app
from otformer.lab.experiments.registry import EXPERIMENTS, chosen

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
N = r"(?<![\w.{^])\d[\d,.]*(?:e[−-]?\d+)?"  # a number that is no part of a word or an index
MEASURED = re.compile(
    rf"{N}\s?%"  # shares
    rf"|{N}\s?(?:s|ms|µs|min|minutes?|seconds?|hours?|[KMGT]i?B|kB)\b"  # times, memory
    rf"|{N} times|×\s?{N}\)|{N}×(?=[\s,.;)])"  # ratios
    rf"|(?<![\w.,])\d[\d,]* of (?:the |all )?{N}"  # 2,000 of 2,000
    r"|(?<![=≤<>≥] )(?<!tol )(?<![\w-])\d[\d.]*e[−-]?\d+"  # 2e-16, but not a setting: tol 1e-6
    r"|\| \**\d+\.\d+\**(?= [(|])"  # a cell of a table
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^(?:\w+=\S+ )*((?:otformer|make|python|torchrun|pytest) .*)$", re.MULTILINE)
LOOKS_LIKE_A_COMMAND = re.compile(r"(?:\w+=\S+ )*(?:otformer|make|python|torchrun|pytest) ")
COMMANDS = {command.callback.__name__ for command in app.registered_commands if command.callback}
TARGETS = set(re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


@dataclass(frozen=True)
class Section:
    """A heading, its level (0 before the first) and the text up to the next heading."""

    title: str
    level: int
    text: str

    @property
    def prose(self) -> str:
        return re.sub(r"`[^`\n]*`", "", FENCED.sub("", self.text))

    @property
    def commands(self) -> list[str]:
        """What is in code in the heading and the text (also over a line's end), and the lines of blocks for a shell."""
        blocks = [line for kind, block in FENCED.findall(self.text) if kind in ("", "sh") for line in SHELL.findall(block)]
        lines = re.sub(
            r"(?<!\n)\n(?!\n)", " ", f"{self.title}\n\n{FENCED.sub('', self.text)}"
        )  # code may go over a line's end
        return [*re.findall(r"`([^`\n]+)`", lines), *blocks]


def sections(page: Path) -> list[Section]:
    text = page.read_text("utf-8")
    hidden = FENCED.sub(lambda block: block[0].replace("#", " "), text)  # a comment in code is no heading
    heads = list(re.finditer(r"^(#+) (.*)\n", hidden, re.MULTILINE))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return [Section(head[2], len(head[1]), text[head.end() : end]) for head, end in zip(heads, ends, strict=True)]


def above(found: list[Section], k: int) -> list[Section]:
    """The k-th section and those whose parts it is; of the page's title only if the section is its own."""
    chain = [found[k]]
    for section in reversed(found[:k]):
        if 1 < section.level < chain[-1].level:
            chain.append(section)
    return chain


@cache
def exists(code: str) -> bool:
    """Whether code is a command of this repository, a test, a script that measures, or an experiment's name."""
    words = [word for word in code.split() if not re.fullmatch(r"\w+=\S+", word)]
    if code in EXPERIMENTS:
        return True
    if words[:1] == ["otformer"]:
        return len(words) > 1 and words[1] in COMMANDS and (words[1] != "reproduce" or _experiments(words[2:]))
    if words[:1] == ["make"]:
        return len(words) > 1 and words[1] in TARGETS
    if words[:2] == ["python", "-m"]:
        place = words[2].replace(".", "/")
        return any((ROOT / root / f"{place}{end}.py").is_file() for root in ("src", "tests") for end in ("", "/__main__"))
    return any(_script(word) for word in words)


def _experiments(words: list[str]) -> bool:
    names = []
    for word in words:
        if word.startswith(("-", "#")):
            break
        names.append(word)
    try:
        return bool(chosen(names or None))
    except ValueError:
        return False


def _script(word: str) -> bool:
    """bench/gpu.py, tests/nn/test_nn.py, nn/test_nn.py::test_name or docs/gallery/make.py."""
    path, _, test = word.partition("::")
    places = (ROOT / path, ROOT / "tests" / path)
    file = next((place for place in places if place.suffix == ".py" and place.is_file()), None)
    if file is None or file.relative_to(ROOT).parts[0] not in ("bench", "tests", "docs"):
        return False
    return not test or test in {node.name for node in ast.parse(file.read_text("utf-8")).body if hasattr(node, "name")}


def without_command(page: Path) -> list[str]:
    """The sections of a page that have measured numbers and no command that exists."""
    found = sections(page)
    lines = []
    for k, section in enumerate(found):
        numbers = [number[0].strip("| ") for number in MEASURED.finditer(section.prose)]
        if numbers and not any(exists(code) for each in above(found, k) for code in each.commands):
            lines.append(f"{page.relative_to(page.parents[1])}, {section.title}: {', '.join(numbers[:5])}")
    return lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_measured_numbers_have_a_command_in_their_section(page: Path) -> None:
    assert without_command(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_named_exists(page: Path) -> None:
    named = [code for section in sections(page) for code in section.commands if LOOKS_LIKE_A_COMMAND.match(code)]
    assert [code for code in named if not exists(code) and "transport.py" not in code] == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("It takes 0.72 s.", ["0.72 s"]),
        ("It takes 0.72 s (`otformer bench cpu`).", []),
        ("It takes 0.72 s (`otformer bensch`).", ["0.72 s"]),
        ("Right: 95 % (`otformer reproduce fox`), 2,000 of 2,000.", []),
        ("Right: 95 % (`otformer reproduce wolf`).", ["95 %"]),
        ("| 1 | 0.85 |\n| 2 | 2.1e-05 |", ["0.85", "2.1e-05"]),
        ("Four times as fast, 4.3 times: `tests/test_docs.py::test_scripts_run`", []),
        ("Four times as fast, 4.3 times: `tests/test_docs.py::test_nothing`", ["4.3 times"]),
        ("λ = 0.05, tol 1e-6, n ≤ 7 and ℝ^{2×n}", []),
        ("```sh\nmake report   # 4 minutes\n```\n3 minutes", []),
        ("```\nmake supper\n```\n3 minutes", ["3 minutes"]),
        ("### Above\n`make test`\n#### Below\n3 minutes\n### Beside\n4 minutes", ["4 minutes"]),
    ],
)
def test_the_reader_of_numbers(tmp_path: Path, text: str, told: list[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n`make test`\n## Section\n{text}\n", encoding="utf-8")
    assert [line.rpartition(": ")[2] for line in without_command(page)] == ([", ".join(told)] if told else [])
