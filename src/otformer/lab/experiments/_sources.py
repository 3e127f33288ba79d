"""What an experiment's numbers are made of: its module, all of the package that this imports, and the data beside it.

If their digest is the same, and seed, size and versions are, a run would give the same numbers and need not be done again.
(What --full reads from OTFORMER_DATA is not looked at.)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path

import otformer

ROOT = Path(otformer.__file__).parent
SHIPPED = {"data", "weights"}  # folders of a room that hold what ships with it


@cache
def digest(module: str, *texts: str) -> str:
    """The digest of a module of the package, all that it imports, the data of their rooms, and texts; "" for no module.

    >>> digest("") == "" != digest("otformer.lab.experiments.sizes") != digest("otformer.lab.experiments.rates")
    True
    """
    if not module:
        return ""
    sources = closure(module)
    rooms = {path.relative_to(ROOT).parts[0] for path in sources}
    made = blake2b("".join(texts).encode(), digest_size=12)
    for path in (*sources, *(path for room in sorted(rooms) for path in _shipped(room))):
        made.update(path.relative_to(ROOT).as_posix().encode() + _contents(path))
    return made.hexdigest()


def closure(module: str) -> list[Path]:
    """The files of a module and of what it imports, lazily or not, directly or not, in order."""
    found: dict[str, Path] = {}
    wanted = [module]
    while wanted:
        name = wanted.pop()
        path = _file(name)
        if path and name not in found:
            found[name] = path
            wanted += _imports(path)
    return [found[name] for name in sorted(found)]


def _file(module: str) -> Path | None:
    """The file of a module of the package, if it is one; not the package itself, whose names are loaded on demand."""
    if not module.startswith("otformer."):
        return None
    place = ROOT.joinpath(*module.split(".")[1:])
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


@cache
def _imports(path: Path) -> list[str]:
    """Every name that a file imports: of ``from a import b`` both a and a.b, as b may be a module."""
    return list(_named(ast.parse(path.read_text(encoding="utf-8"))))


def _named(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _shipped(room: str) -> list[Path]:
    """The data files of a room, in order."""
    folders = (path for path in (ROOT / room).rglob("*") if path.is_dir() and path.name in SHIPPED)
    return sorted({file for folder in folders for file in folder.rglob("*") if file.is_file()})


@cache
def _contents(path: Path) -> bytes:
    return blake2b(path.read_bytes(), digest_size=16).digest()
