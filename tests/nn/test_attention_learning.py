"""`SinkhornAttention` in training: the tasks of bench/attention.py beside softmax attention, and on two ranks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from attention import learn

STEPS = 100
PAGE = Path(__file__).parents[2] / "docs" / "layers.md"


def test_the_page_keeps_its_promise():
    section = PAGE.read_text("utf-8").split("## `SinkhornAttention`")[1]
    page: dict = {}
    exec(re.findall(r"```python\n(.*?)```", section, flags=re.S)[0], page)
    assert float(page["received"].detach().max()) > 2
    torch.testing.assert_close(page["received_equally"], torch.ones(1, 50))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["copy", "sort"])
def test_it_learns_what_softmax_attention_learns(task):
    (plain, _), (loss, right) = learn(task, "softmax", STEPS), learn(task, "balanced", STEPS)
    assert loss < 1.1 * plain
    assert right > (0.99 if task == "copy" else 0.85)


@pytest.mark.slow
def test_two_ranks_learn_what_one_does(tmp_path: Path):
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    worker = Path(__file__).with_name("distributed_attention.py")
    ranks = [
        subprocess.Popen([sys.executable, str(worker), str(rank), str(tmp_path / "meet")], env=env, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for process in ranks:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said.decode()
