"""The command in this process, as the console script calls it: a process of its own costs seconds of imports."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass

import pytest

from otformer.cli.main import main


@dataclass(frozen=True)
class Done:
    """What a command left."""

    returncode: int
    stdout: str
    stderr: str


def otformer(*arguments: object, stdin: str = "") -> Done:
    """Run ``otformer`` with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["otformer", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    return Done(int(str(code or 0)), out.getvalue(), err.getvalue())
