"""The commands that are disturbed, and what they read."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from helpers import tiny_models


@dataclass(frozen=True)
class Command:
    """``first`` is killed and ``again`` goes on; ``old`` leaves an older result of other bytes in the same place, if any.

    ``growing`` are files to which lines are added: what is seen of them is a beginning of what they become.
    """

    first: str
    again: str
    old: str = ""
    growing: tuple[str, ...] = ()
    stdin: str = "/dev/null"


REPRODUCE, TRAIN = "reproduce sizes rates --out report", "train --recipe sort-beyond-3 --steps 45 --out run"
PROBE = "probe {given}/model {given}/text --dictionary {given}/words --languages en-fr --pairs 200 --out probed"
COMMANDS = {
    "reproduce": Command(REPRODUCE, f"{REPRODUCE} --resume", f"{REPRODUCE} --seed 1"),
    "train": Command(TRAIN, f"{TRAIN} --resume", growing=("run/log.csv",)),
    "align": Command(
        *["align - --by spaces --out links --matrix scores.npz"] * 2,
        "align {given}/other --by spaces --out links --matrix scores.npz",
        stdin="{given}/text",
    ),
    "probe": Command(
        *[PROBE] * 2,
        f"{PROBE} --seed 1",
    ),
    "exact": Command(
        *["solve {given}/x.npy {given}/y.npy --exact --out plan.npz"] * 2,
        "solve {given}/y.npy {given}/x.npy --exact --out plan.npz",
    ),
}


def write_inputs(folder: Path) -> None:
    """Text, words, points and a tiny model, which all commands only read."""
    folder.mkdir()
    tiny_models.marian(folder / "model")
    for name, numbers in (("text", range(160)), ("other", range(160, 200))):
        lines = [f"{a} {k} ||| {b} {k}\n" for k in numbers for a, b in tiny_models.PAIRS]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    (folder / "words").write_text("cat chat\nhouse maison\nman homme\ndog chien\n", encoding="utf-8")
    rng = np.random.default_rng(0)
    for name in ("x", "y"):
        np.save(folder / f"{name}.npy", rng.random((1000, 2)))


def without_times(data: bytes) -> bytes:
    """The bytes, but for the seconds that a run says it took."""
    return re.sub(rb'(seconds"?:?\s+)[\d.e+-]+|\b[\d.]+( s\b)', rb"\1\2", data)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones and links too, and every empty folder as one without bytes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        with suppress(FileNotFoundError):  # gone meanwhile
            if path.is_dir():
                found |= {} if any(path.iterdir()) else {f"{name}/": b""}
            else:
                found[name] = comparable(name, path.read_bytes())
    return found


def comparable(name: str, data: bytes) -> bytes:
    """The bytes of a file that two runs have in common: all, but for times in a report."""
    return without_times(data) if name.endswith((".json", ".html")) else data
