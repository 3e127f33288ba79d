"""What claims.toml says: each claim, its tests, and how it is made stronger."""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("claims.toml")
PAGE = ROOT / "docs" / "theorem-tests.md"
NO_RATIO = ("equality", "none")
NODE = re.compile(r"(\w+/\w+\.py)::(test_\w+)(\[.*\])?")


@dataclass(frozen=True)
class Claim:
    """A claim, and the edit ``old`` → ``new`` of ``file`` that makes it stronger by what ``mutation`` says.

    ``tests`` are node ids under tests/. ``ratio`` is the property that they record; "equality" if the claim is one, and
    "none" if there is no bound to compare with.
    ``unsharp`` says why no test fails if the claim is made only 20 % stronger; then the edit does more than that.
    """

    theorem: str
    claim: str
    tests: tuple[str, ...]
    mutation: str
    file: str
    old: str
    new: str
    ratio: str = "largest ratio"
    unsharp: str = ""

    @property
    def name(self) -> str:
        return f"{self.theorem}: {self.claim}"

    def functions(self) -> list[tuple[str, str]]:
        """The file, under tests/, and the name of each of its tests."""
        named = [NODE.fullmatch(test) for test in self.tests]
        return [(each[1], each[2]) for each in named if each]


@dataclass
class Seen:
    """What a claim's tests record without the mutation, and the test that fails with it."""

    problems: int = 0
    ratio: float | None = None
    noticed: str = ""
    wrong: list[str] = field(default_factory=list)


def load(file: Path = FILE) -> list[Claim]:
    found = tomllib.loads(file.read_text("utf-8"))["claim"]
    return [Claim(**{**each, "tests": tuple(each["tests"])}) for each in found]


def digest(file: Path = FILE) -> str:
    """By which the page is known to belong to these claims."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
