"""What all commands share: the option --json, examples in the help, notes on standard error, a bar, and Ctrl-C."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from otformer.errors import ConflictError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
LINE_EVERY = 30.0  # seconds between two lines of progress where standard error is not a terminal
SPEED_OVER = 300.0  # seconds of work from which the time left is estimated


def examples(*commands: str) -> dict[str, Any]:
    """Arguments of ``app.command``: the end of its help shows these commands."""
    return {"epilog": "\b\nExamples:\n" + "\n".join(f"  otformer {command}" for command in commands)}


def note(text: object) -> None:
    """Write one line of the program's own to standard error; control characters, of a file's name say, are spelled."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))
    typer.echo(f"otformer: {shown}", err=True)


def refused(context: typer.Context, mode: str, *names: str) -> None:
    """Raise ConflictError for options that this mode would ignore."""
    options = {param.name: param.opts[0] for param in context.command.params}
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = options[name]
            value = "" if context.params[name] is True else f" {context.params[name]}"
            raise ConflictError(option, mode, option + value)


def print_to(sink: IO[str], text: str) -> None:
    """Write to stdout; exit quietly on a broken pipe."""
    try:
        sink.write(text)
        sink.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())  # the rest of the buffer would fail again at the end
        if isinstance(error, BrokenPipeError):  # as of `| head`: nobody wants the rest
            sys.exit(0)
        raise ValueError(f"standard output cannot be written: {error.strerror}") from None


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Turn warnings of the library into notes, except that a solver has not converged: commands print their own line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
    for warning in caught:
        note(warning.message)


class Bar:
    """The bar of one command: ``advance`` by some of its total, or ``reach`` so much of it and show a name."""

    def __init__(self, progress: Progress, name: str, total: float) -> None:
        self.progress, self.name = progress, name
        self.task: TaskID = progress.add_task(name, total=total)
        self.advance(0)  # speed is measured from now on

    def advance(self, amount: float) -> None:
        """Add what has been done since the last call."""
        self.progress.advance(self.task, amount)

    def reach(self, done: float, name: str | None = None) -> None:
        """Set what has been done so far."""
        self.progress.update(self.task, completed=done, description=name or self.name)

    def line(self) -> str:
        """The bar in words."""
        task = self.progress.tasks[0]
        elapsed, left = (timedelta(seconds=round(seconds or 0)) for seconds in (task.elapsed, task.time_remaining))
        remaining = "time left unknown" if task.time_remaining is None else f"{left} left"
        return f"{task.description}: {task.percentage:.0f} %, {elapsed}, {remaining}"


@contextmanager
def bar(name: str, total: float) -> Iterator[Bar]:
    """Show name, share, time and time left on standard error: a bar on a terminal, otherwise a line every half minute."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("left:"))
    options: dict[str, Any] = {"transient": True, "disable": not console.is_terminal, "speed_estimate_period": SPEED_OVER}
    with Progress(*columns, TimeRemainingColumn(), console=console, **options) as shown:
        made, done = Bar(shown, name, total), threading.Event()

        def lines() -> None:
            while not done.wait(LINE_EVERY):
                note(made.line())

        if not console.is_terminal:
            shown.start_task(made.task)
            threading.Thread(target=lines, daemon=True).start()
        try:
            yield made
        finally:
            done.set()


@contextmanager
def told_by_the_library() -> Iterator[None]:
    """Show what the library logs of its progress: on the last line of a terminal, else as a line every half minute."""
    from rich.console import Console
    from rich.status import Status

    console = Console(stderr=True)
    status, said = Status("", console=console), time.monotonic()

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            nonlocal said
            if console.is_terminal:
                status.update(record.getMessage())
                status.start()
            elif time.monotonic() > said + LINE_EVERY:
                said = time.monotonic()
                note(record.getMessage())

    logger, handler = logging.getLogger("otformer"), Shown(logging.INFO)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        status.stop()


@contextmanager
def interruptible(kept: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C ends the command with 130 and one line, which says what is kept and which command goes on."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"interrupted; {kept()}")
        sys.exit(130)
