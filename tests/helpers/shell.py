"""Command lines of bash in which ``otformer`` is this source tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import otformer

SRC = Path(otformer.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}


def shell(command: str, folder: Path, memory: int = 8 * 2**20, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command line in a folder, with ``memory`` KiB of address space; it fails after so many seconds."""
    text = f'ulimit -v {memory}; otformer() {{ "{sys.executable}" -m otformer.cli "$@"; }}; {command}'
    options = {"cwd": folder, "env": {**ENVIRONMENT, "TMPDIR": str(folder)}, "capture_output": True, "text": True}
    return subprocess.run(["bash", "-c", text], timeout=seconds, check=False, **options)
