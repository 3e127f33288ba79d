"""The three parts of a refusal, wherever it is read: the argument, what was expected, what came."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from otformer.errors import ArgumentError


def assert_says(line: str, argument: str, expected: str, got: str = "") -> None:
    """One line that begins with the argument and has what was expected and what came behind it, in whichever words."""
    said = line.removeprefix("otformer: ").removesuffix("\n")
    assert "\n" not in said
    assert said.startswith(argument), f"{said!r} does not name {argument!r}"
    behind = said.removeprefix(argument)
    assert expected in behind, f"{said!r} does not say that {expected!r} was expected"
    assert got in behind, f"{said!r} does not say that {got!r} came"


@contextmanager
def refuses(argument: str, expected: str, got: str = "") -> Iterator[None]:
    """The code inside raises an ArgumentError of these parts, which processes can pass on."""
    with pytest.raises(ArgumentError) as caught:
        yield
    error = caught.value
    assert str(error.argument) == argument
    assert expected in error.expected
    assert got in error.got
    assert_says(str(error), argument, expected, got)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.argument, again.got) == (type(error), str(error), error.argument, error.got)
