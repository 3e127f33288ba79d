"""The kernels of a GPU on machines that have none: in Triton's interpreter, against the matrix in float64."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from needs import missing


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason=missing("linux"))
@pytest.mark.parametrize(
    "checks",
    [("passes", "tiles", "left_out", "wide", "as_many_points_as_dimensions"), ("products", "solve")],
    ids=["passes", "products"],
)
def test_kernels_in_the_interpreter(checks: tuple[str, ...]) -> None:
    """helpers/interpreted_kernels.py has the checks. Without triton the process fails, and the test with it."""
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    call = [sys.executable, "-m", "helpers.interpreted_kernels", *checks]
    done = subprocess.run(call, cwd=Path(__file__).parents[1], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
