"""What experiments left in a folder, read as untrusted input: a file may be damaged, huge or not ours."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from otformer.array_files import LARGEST_TABLE, read_whole
from otformer.lab.experiments.runner import read_record
from otformer.lab.experiments.settings import said

LARGEST_CELL = 100  # letters of a cell that are shown
FIELDS: dict[str, Any] = {  # of a run.json, with their types
    **dict.fromkeys(("name", "title", "source", "claim", "summary"), str),
    **dict.fromkeys(("checks", "settings", "versions"), dict),
    **{"position": int, "seed": int, "full": bool, "seconds": (int, float)},
}
Record = dict[str, Any]


def read_records(folder: Path) -> tuple[list[Record], list[str]]:
    """The records of ``folder/*/run.json``, and the names of those folders whose run.json is none of ours."""
    records, strange = [], []
    for path in sorted(folder.glob("[!.]*/run.json")):
        record = _record(path.parent)
        if record is None:
            strange.append(path.parent.name)
        else:
            records.append(record)
    return records, strange


def _record(folder: Path) -> Record | None:
    """The contents of a folder's run.json if all fields are there."""
    about = read_record(folder)
    if about is None or not all(isinstance(about.get(name), kind) for name, kind in FIELDS.items()):
        return None
    found = about.get("finding") or {}
    parts = {name: found.get(name) if isinstance(found, dict) else None for name in ("title", "brief", "number")}
    about["changed"] = _said(about.get("changed"))
    about["finding"] = parts if all(isinstance(part, str) for part in parts.values()) else None
    return about


def _said(values: Any) -> dict[str, str]:
    """Settings as ``--set`` takes them; none where there is no dict."""
    return {str(name): said(value) for name, value in values.items()} if isinstance(values, dict) else {}


def read_table(file: Path, most: int) -> tuple[list[list[str]], int]:
    """The header and the first rows of a CSV, and the number of further rows; empty for an unreadable file."""
    rows: list[list[str]] = []
    more = 0
    try:
        text = read_whole(file, LARGEST_TABLE).decode()
        for row in csv.reader(io.StringIO(text, newline="")):
            if len(rows) <= most:
                rows.append([cell[:LARGEST_CELL] for cell in row])
            else:
                more += 1
    except (OSError, ValueError, csv.Error):
        return [], 0
    return rows, more


def size_of_png(file: Path) -> tuple[int, int] | None:
    """Width and height in pixels, from the first bytes of the file; nothing if it is no PNG."""
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        head = stream.read(24)
    if head[:8] != b"\x89PNG\r\n\x1a\n" or len(head) < 24:
        return None
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
