"""`SinkhornAttention` at the tasks of bench/attention.py beside softmax attention; long, compiled, on two ranks."""

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

from otformer.nn import SinkhornAttention

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


MEMORY = """
import resource, torch
from otformer.nn import SinkhornAttention
module = SinkhornAttention(64, 1, batch_first=True, tol=0.3)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def run(n):
    x = torch.randn(1, n, 64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    module(x, x, x, need_weights=False)[0].square().sum().backward()
    assert x.grad.isfinite().all()
run(1024)
before = peak()
run(8192)
print(peak() - before)
"""


@pytest.mark.slow
def test_long_sequences_do_not_form_the_matrix():
    """8,192 tokens, forward and backward: the matrix alone would take 256 MiB in float32. bench/attention.py has 16,384."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", MEMORY], env=env, capture_output=True, text=True, timeout=300, check=True)
    assert float(done.stdout) < 128


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_under_torch_compile_results_are_the_same():
    for options in ({}, {"executor": "stream", "unbalanced": 0.7}):
        module, x = SinkhornAttention(16, 2, batch_first=True, **options), torch.randn(2, 6, 16, requires_grad=True)

        def run(x, module=module):
            return (module(torch.sin(x), x, x, need_weights=False)[0] * 2).square().sum()

        torch.compiler.reset()
        plain, compiled = run(x), torch.compile(run, backend="eager")(x)
        torch.testing.assert_close(compiled, plain)
        torch.testing.assert_close(*(torch.autograd.grad(out, x)[0] for out in (compiled, plain)))
