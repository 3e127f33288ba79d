"""The note (`make paper`): it compiles, has ten pages at most, and its tables say what is recorded and what Coq checks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "paper"


@pytest.mark.slow
def test_the_note_compiles() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "paper" / "make.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = re.search(rb"/Type */Pages */Count (\d+)", (BUILD / "otformer.pdf").read_bytes())
    assert pages
    assert 6 <= int(pages[1]) <= 10
    table, checked = ((BUILD / name).read_text("utf-8") for name in ("experiments.typ", "checked.typ"))
    assert "`hilbert_rate`" in checked
    assert "[`convergence`], [figure 3], [distance to the plan at layer" in table
