"""What every test run sets, and the fixtures of the packages that are installed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from otformer.extras import installed

os.environ.setdefault("POT_BACKEND_DISABLE_JAX", "1")  # POT imports jax if it can: a second per process, and never used here
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # the run was started in the background, and tests send Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
pytest_plugins = ("needs", "pytester", *(["word_fixtures"] if installed("words") else []))


@pytest.fixture
def record_property(record_property: Callable[[str, object], None]) -> Callable[[str, object], None]:
    """Pytest's own, for numbers of numpy too: xdist cannot send these from one process to another."""
    return lambda name, value: record_property(name, getattr(value, "item", lambda: value)())
