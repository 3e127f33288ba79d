"""The command line, ``otformer solve | sort | align | transfer | …`` (`PLACES`), entered by __main__.py.

Bad input is one line on standard error and exit code 2; Ctrl-C is one line and exit code 130. An answer that is not to the
tolerance asked for is printed and written all the same, with exit code 3. Whatever loads torch is imported inside the
commands, so that help, version and lists answer at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from typing import Annotated, Any, TextIO

import typer

from otformer import __version__
from otformer.cli.common import examples, note
from otformer.errors import ArgumentError
from otformer.extras import installed, lacks
from otformer.memory import SAYS, lacking

INTERRUPTED = 130  # exit code after Ctrl-C
# Arguments that are called otherwise on the command line; the others have the names of their options.
OTHER_NAMES = {"families": "family", "peers": "peer", "regs": "reg", "path": "save", "file": "html"}
OTHER_NAMES |= {"metric (or cost)": "metric", "reg_m, or unbalanced,": "unbalanced"}
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


# Where each command is, in the order of the help: in the library (cli), or in a package that may not be installed.
PLACES = {
    "solve": "cli.solve",
    "sort": "cli.solve",
    "align": "words.commands.align",
    "transfer": "words.commands.transfer",
    "probe": "words.commands.probe",
    "explore": "cli.explore",
    "reproduce": "lab.commands",
    "train": "lab.commands",
    "bench": "lab.commands",
}
EXAMPLES = {
    "solve": (
        "solve x.csv y.csv --reg 0.01 --out plan.npz",
        "solve x.csv y.csv --exact --out pairs.csv",
        "solve cost.csv --cost --a a.csv --b b.csv",
        "solve both.npz",
    ),
    "sort": ("sort 3 1 2", "sort -- 3 -1 2", "sort < numbers.txt"),
    "align": ("align 'The cat sleeps ||| Le chat dort'", "align news.de news.en -l de-en --out links"),
    "transfer": (
        "transfer 'Der <b>schwarze</b> Hund ||| The black dog' -l de-en",
        "transfer news.de.html news.en -l de-en --out news.en.html",
        "transfer news.de.conll news.en -l de-en --column 4 --out news.en.conll",
    ),
    "probe": ("probe en-fr", "probe path/to/gpt2 test.txt --gold test.talp --one-based"),
    "explore": ("explore", "explore --save explore.html --no-open"),
    "reproduce": ("reproduce --list", "reproduce figure-3 depth", "reproduce figure-3 --set n=16 --set reg=0.05"),
    "train": ("train --list", "train --recipe sort-beyond --ensemble 8 --device cuda"),
    "bench": ("bench small", "bench cpu --family uniform-2d --reg 0.001 --append", "bench exact --n 2000 --threads 2"),
}


def _register(name: str, part: str, module: str) -> None:
    """Add a command; if its package is not installed, add one that takes any arguments and raises with install advice."""
    if part == "cli" or installed(part):
        app.command(**examples(*EXAMPLES[name]))(getattr(import_module(f"otformer.{part}.{module}"), name))
        return

    def absent(_: typer.Context) -> None:
        raise ValueError(lacks(name, part))

    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(name, help=f"Not installed: needs the package otformer-{part}.", context_settings=anything)(absent)


for _name, _place in PLACES.items():
    _register(_name, *_place.split(".", 1))


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
    """Print a UserWarning as a note; write any other warning, which is meant for developers, as Python does."""
    if category is UserWarning:
        note(message)
    else:
        (file or sys.stderr).write(warnings.formatwarning(message, category, filename, lineno, line))


def _check_folder() -> None:
    """Raise ValueError if the working directory no longer exists: libraries would end the process."""
    try:
        os.getcwd()
    except OSError as error:
        raise ValueError(f"the working folder no longer exists ({error.strerror}): change to one that exists") from None


def _one_line(error: Exception) -> str:
    """Return the message of a user or system error; re-raise anything else as a bug."""
    if hasattr(error, "format_message"):  # of click
        return _usage(error)
    if isinstance(error, ArgumentError):
        error = error.renamed(_options_by_argument())
    said = str(error).strip() or type(error).__name__
    first = said if any("\n" in word for word in sys.argv) else said.splitlines()[0]  # a name may be of several lines
    if lacking(error):
        return SAYS + first.removeprefix(SAYS)
    if not isinstance(error, (ValueError, OSError)):
        raise error
    return first


def _usage(error: Any) -> str:
    """Return click's message and where to read on; for a value that is not a number, name the option and the value."""
    if hasattr(error.__cause__, "errors"):  # of pydantic, which reads the options
        wrong = error.__cause__.errors()[0]
        expected = "be a whole number" if "int" in wrong["type"] else "be a number"
        return str(ArgumentError(error.param.opts[0], expected, repr(wrong["input"])))
    said = str(error.format_message()).rstrip(".")
    if sys.argv[1] == "sort" and str(getattr(error, "option_name", ""))[1:2].isdigit():
        return f"{said} (negative numbers go behind --)"
    command = f"otformer {error.ctx.info_name}" if error.ctx and error.ctx.parent else "otformer"
    return f"{said} (see {command} --help)"


def _options_by_argument() -> dict[str, str]:
    """The options of the command that was given, by the arguments of functions: max_depth is --max-depth."""
    commands = getattr(typer.main.get_command(app), "commands", {})
    params = getattr(commands.get(sys.argv[1]), "params", ())
    options = {param.name: param.opts[0] for param in params if param.opts[0].startswith("--")}
    return {**options, **{name: options[option] for name, option in OTHER_NAMES.items() if option in options}}
