"""A process that has imported what the tests import, and forks for each run of pytest: these imports take three seconds.

Its arguments are the modules. It reads pytest's arguments, a line of JSON for each run, and answers with a line at its end.
What pytest says is in said.txt.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys

import pytest

LIMIT = 300  # seconds for one run


def main() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            signal.alarm(LIMIT)  # which kills
            with open("said.txt", "wb") as said:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
            code = pytest.main(json.loads(line))
            sys.stdout.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        print(status, flush=True)


if __name__ == "__main__":
    main()
