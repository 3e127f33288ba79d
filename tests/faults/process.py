"""Starting a command: forked from this process, which has imported everything, or as a process of its own."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parents[1]
SRC = TESTS.parent / "src"
FAILED = 70  # exit code of a child that has raised what the command line does not handle


class Place:
    """A folder in which commands run: ``out``, where they stand, ``tmp``, their TMPDIR, and ``said``, what they print."""

    def __init__(self, folder: Path, given: Path) -> None:
        self.folder, self.given = folder, given
        self.out, self.tmp, self.said = (folder / name for name in ("out", "tmp", "said"))
        for each in (folder, self.out, self.tmp):
            each.mkdir()

    def start(
        self, line: str, stdin: str = os.devnull, fresh: bool = False, before: Callable[[], None] = lambda: None
    ) -> int:
        """Start a command line in a child of this process, in which ``before`` is called; a ``fresh`` one imports anew."""
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            return child
        code: object = FAILED
        try:
            self._stand(stdin)
            before()
            words = line.format(given=self.given).split()
            if fresh:
                os.execv(sys.executable, [sys.executable, "-m", "faults.small", *words])
            from otformer.cli.__main__ import main

            sys.argv = ["otformer", *words]
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else FAILED)

    def _stand(self, stdin: str) -> None:
        """A session of its own, these streams, this folder, this TMPDIR."""
        os.setsid()
        said = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(os.open(stdin.format(given=self.given), os.O_RDONLY), 0)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.stdin, sys.stdout, sys.stderr = (open(number, mode) for number, mode in enumerate("rww"))  # noqa: SIM115
        os.chdir(self.out)
        os.environ |= {"TMPDIR": str(self.tmp), "PYTHONPATH": f"{SRC}{os.pathsep}{TESTS}"}
        tempfile.tempdir = None


def warm() -> None:
    """Import what the commands import, and compile what they compile, once for all children."""
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg  # noqa: F401
    import numpy as np
    import transformers.models.marian.modeling_marian  # noqa: F401

    import otformer as of
    from faults.small import shrink
    from otformer.cli import main  # noqa: F401
    from otformer.experiments.registry import chosen
    from otformer.experiments.runner import versions
    from otformer.learning import evaluate, plot  # noqa: F401
    from otformer.report import html  # noqa: F401
    from otformer.words.align import align  # noqa: F401
    from otformer.words.probe import figure, one_pair, page, table, work  # noqa: F401

    shrink()
    versions()
    chosen(["sizes", "rates"])
    of.solve_sample(np.eye(3), np.eye(3), reg=0)
    rng = np.random.default_rng(0)
    of.solve_sample(rng.random((300, 2)), rng.random((300, 2)), reg=0)
