"""Every public function, short of memory, says in one line its sizes, what it would have needed and what needs less."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import starved
from helpers.shell import ENVIRONMENT, SRC, shell

LINE = re.compile(r"not enough memory: (\w+(?:\.\w+)?) of (.*) needs about ([\d.]+) (MiB|GiB); \S.*")
SIZES = tuple(f"{n:,}" for n in (starved.LARGE, starved.LARGE + 1, starved.MANY * starved.LARGE, 250_001))
NAMES = list(starved.cases(starved.TINY, starved.TINY))
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    paths = f"{SRC}:{Path(starved.__file__).parents[1]}"
    command = [sys.executable, "-m", "helpers.starved"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT | {"PYTHONPATH": paths})
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_a_call_without_memory_is_one_line(name: str, found: dict[str, Any]) -> None:
    for kind, said in found["short"][name]:
        line = LINE.fullmatch(said)
        assert kind == "MemoryError", said
        assert line is not None, said
        assert line[1] in (name.partition(",")[0], "SoftRank"), said
        assert any(size in line[2] for size in SIZES), said
        assert starved.needed(["", said]) > starved.LEFT, said


@pytest.mark.parametrize("name", [name for name in NAMES if name not in starved.LONG])
def test_half_as_much_again_as_a_call_says_is_enough(name: str, found: dict[str, Any]) -> None:
    assert found["enough"][name] == ["", "no error"]


@pytest.mark.parametrize("options", ["x.npy x.npy", "cost.npy --cost", "cost.npy --cost --exact"])
def test_commands_without_memory_are_one_line(options: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((9_000, 2)))
    np.save(tmp_path / "cost.npy", np.zeros((9_000, 9_000), np.float16))
    done = shell(f"otformer solve {options}", tmp_path, memory=3 * 2**20 // 2)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert LINE.fullmatch(done.stderr.strip().removeprefix("otformer: ")), done.stderr
    assert "a 9,000 × 9,000 cost needs about 2.48 GiB" in done.stderr
