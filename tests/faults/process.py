"""Starting a command: forked from this process, which has imported everything, or as a process of its own."""

from __future__ import annotations

import copy
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

    def beside(self) -> Place:
        """Another in the same folders that says what it says elsewhere."""
        other = copy.copy(self)
        other.said = self.folder / "said-too"
        return other

    def forgotten(self) -> list[str]:
        """What is left in TMPDIR."""
        return [f"TMPDIR/{path.relative_to(self.tmp)}" for path in self.tmp.rglob("*")]

    def start(
        self, line: str, stdin: str = os.devnull, fresh: bool = False, before: Callable[[], None] = lambda: None
    ) -> int:
        """Start a command line in a child of this process, in which ``before`` is called; a ``fresh`` one imports anew."""
        words = line.format(given=self.given).split()

        def command() -> None:
            before()
            if fresh:
                os.execv(sys.executable, [sys.executable, "-m", "faults.small", *words])
            from otformer.cli.__main__ import main

            sys.argv = ["otformer", *words]
            main()

        return forked(command, self, self.said, stdin.format(given=self.given))


def forked(work: Callable[[], None], place: Place, said: Path, stdin: str = os.devnull) -> int:
    """The id of a child that works in a place: a session of its own, its folder and TMPDIR, and these streams."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code: object = FAILED
    try:
        os.setsid()
        written = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for number, stream in enumerate((os.open(stdin, os.O_RDONLY), written, written)):
            os.dup2(stream, number)
        sys.stdin, sys.stdout, sys.stderr = (open(number, mode) for number, mode in enumerate("rww"))  # noqa: SIM115
        os.chdir(place.out)
        os.environ |= {"TMPDIR": str(place.tmp), "PYTHONPATH": f"{SRC}{os.pathsep}{TESTS}"}
        tempfile.tempdir = None
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else FAILED)


def warm() -> None:
    """Import what the commands import, and compile what they compile, once for all children."""
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg  # noqa: F401
    import numpy as np
    import transformers.models.marian.modeling_marian  # noqa: F401

    import otformer as of
    from faults.small import shrink
    from otformer.cli import main  # noqa: F401
    from otformer.lab.experiments.registry import chosen
    from otformer.lab.experiments.runner import versions
    from otformer.lab.report import html  # noqa: F401
    from otformer.lab.training import evaluate, plot  # noqa: F401
    from otformer.words import aligning  # noqa: F401
    from otformer.words.probe import figure, one_pair, page, table, work  # noqa: F401

    shrink()
    versions()
    chosen(["sizes", "rates"])
    of.solve_sample(np.eye(3), np.eye(3), reg=0)
    rng = np.random.default_rng(0)
    of.solve_sample(rng.random((300, 2)), rng.random((300, 2)), reg=0)
