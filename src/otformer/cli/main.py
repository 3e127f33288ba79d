"""The command line: ``otformer solve | sort | align | probe | explore | reproduce | train | bench``, entered by __main__.py.

Bad input is one line on standard error and exit code 2; Ctrl-C is one line and exit code 130. An answer that is not to the
tolerance asked for is printed and written all the same, with exit code 3. Whatever loads torch is imported inside the
commands, so that help, version and lists answer at once.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from itertools import pairwise
from typing import Annotated, Any, TextIO

import typer

from otformer import __version__
from otformer.cli.common import examples, note
from otformer.cli.explore import explore
from otformer.cli.runs import bench, reproduce, train
from otformer.cli.solve import solve, sort
from otformer.cli.words import align, probe
from otformer.memory import SAYS, lacking

INTERRUPTED = 130  # exit code after Ctrl-C
OTHER_NAMES = {"families": "family", "peers": "peer", "regs": "reg", "path": "save", "file": "html"}  # of arguments: options
app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="A transformer with frozen softmax-attention weights solves optimal transport, layer by layer.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"otformer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


app.command(
    **examples(
        "solve x.csv y.csv --reg 0.01 --out plan.npz",
        "solve x.csv y.csv --exact --out pairs.csv",
        "solve cost.csv --cost --a a.csv --b b.csv",
        "solve both.npz",
    )
)(solve)
app.command(**examples("sort 3 1 2", "sort -- 3 -1 2", "sort < numbers.txt"))(sort)
app.command(**examples("align 'The cat sleeps ||| Le chat dort'", "align news.de news.en -l de-en --out links"))(align)
app.command(**examples("probe en-fr", "probe path/to/gpt2 test.txt --gold test.talp --one-based"))(probe)
app.command(**examples("explore", "explore --save explore.html --no-open"))(explore)
app.command(**examples("reproduce --list", "reproduce figure-3 depth", "reproduce --full --resume"))(reproduce)
app.command(**examples("train --list", "train --recipe sort-beyond --ensemble 8 --device cuda"))(train)
app.command(
    **examples("bench small", "bench cpu --family uniform-2d --reg 0.001 --append", "bench exact --n 2000 --threads 2")
)(bench)


def main() -> None:
    """Run the command that the arguments name."""
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        _check_folder()
        with warnings.catch_warnings():
            warnings.showwarning = _warned
            code = app(standalone_mode=False)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code:
            sys.exit(code)
    except (KeyboardInterrupt, typer.Abort):
        note("interrupted")
        sys.exit(INTERRUPTED)
    except Exception as error:
        note(_one_line(error))
        sys.exit(2)


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """What the user should know is a line like the others; what a library says to its developers stays as it is."""
    if category is UserWarning:
        note(message)
    else:
        (file or sys.stderr).write(warnings.formatwarning(message, category, filename, lineno, line))


def _check_folder() -> None:
    """Without a folder to work in, libraries end the process in words of their own."""
    try:
        os.getcwd()
    except OSError as error:
        raise ValueError(f"the folder to work in is gone ({error.strerror}): change to one that exists") from None


def _one_line(error: Exception) -> str:
    """What an error that is the input's fault, or the machine's, says; any other is ours, and is raised again."""
    if hasattr(error, "format_message"):  # of click
        return _usage(error)
    said = str(error).strip() or type(error).__name__
    first = said if any("\n" in word for word in sys.argv) else said.splitlines()[0]  # a name may be of several lines
    if lacking(error):
        return SAYS + first.removeprefix(SAYS)
    if not isinstance(error, (ValueError, OSError)):
        raise error
    return _as_option(first)


def _usage(error: Any) -> str:
    """What click says of the command line, and what to do; of a text that is no number, which one it is."""
    said, command = str(error.format_message()), sys.argv[1]
    wanted = re.findall(r"valid (integer|float|number)\b", said)[-1:]  # the text that came, which may say so too, is before
    options = getattr(getattr(error, "param", None), "opts", ()) if wanted else ()
    expected, read = ("a whole number", int) if wanted == ["integer"] else ("a number", float)
    given = [*pairwise(sys.argv), *(word.split("=", 1) for word in sys.argv if "=" in word)]
    for option, text in given:
        try:
            read(text if option in options else "0")
        except ValueError:
            return f"{option} must be {expected}, got {text!r}"
    if "No such option" in said:
        negative = command == "sort" and re.search(r": -[\d.]", said)
        return said + " (negative numbers go behind --)" * bool(negative)
    asked = f"otformer {command}" if command in _commands() else "otformer"
    return said if "Did you mean" in said else f"{said.rstrip('.')}: see {asked} --help"


def _commands() -> dict[str, Any]:
    """Click's commands by name."""
    return dict(getattr(typer.main.get_command(app), "commands", {}))


def _as_option(said: str) -> str:
    """The option that was given, where a message begins with an argument of a function: max_depth is --max-depth.

    A message that begins with a word of the command line speaks of a file of that name.
    """
    params = getattr(_commands().get(sys.argv[1]), "params", ())
    options = {param.name: param.opts[0] for param in params if param.opts[0].startswith("--")}
    found = re.match(r"([\w-]+)(?= (?:must be|must end|cannot be|goes with|draws|is)\b)", said)
    name = found[1].replace("-", "_") if found and found[1] not in map(os.path.normpath, sys.argv[2:]) else ""
    option = options.get(OTHER_NAMES.get(name, name))
    return said if option is None else option + said[len(name) :]
