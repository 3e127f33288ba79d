"""Every Python block of the README and the docs runs, page by page, as a reader would paste it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELSEWHERE = {"sharded.md": "run by torchrun in test_sharded.py", "layers.md": "trained in test_nn.py"}
PAGES = [page for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))) if BLOCK.search(page.read_text("utf-8"))]


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in ELSEWHERE], ids=lambda p: p.name)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in BLOCK.findall(page.read_text("utf-8")):
            exec(compile(block, str(page), "exec"), names)
    assert len(names) > 1  # a block that fails raises; what ran has left its names
