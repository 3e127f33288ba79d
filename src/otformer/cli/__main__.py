"""The entry of ``otformer`` and of ``python -m otformer.cli``: open standard streams, and Ctrl-C from the start."""

import os
import signal
import sys


def main() -> None:
    """Run the command line; nothing else is imported before Ctrl-C is one line."""
    try:
        _open_streams()
        from otformer.cli.main import main as run

        run()
    except (ImportError, MemoryError, OSError) as error:
        if not any(words in str(error) for words in ("failed to map segment", "Cannot allocate memory", "cannot allocate")):
            raise
        sys.stderr.write("otformer: not enough memory: torch and Python alone need about 1 GB of address space\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("otformer: interrupted\n")
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said: one more Ctrl-C would change the exit code
        try:
            sys.stdout.flush()
        except OSError:  # said already; the interpreter would fail at it once more, on its way out
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_streams() -> None:
    """Open /dev/null in place of closed standard streams; writing to the output then fails, and the error is reported.

    Left closed, their numbers would go to the next files that are opened, and what is printed would land in these.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest number that is free: this one
    sys.stdin = sys.stdin or os.fdopen(0, "r")
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


if __name__ == "__main__":
    main()
