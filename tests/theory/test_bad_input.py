"""Arguments outside a theorem's hypotheses: one line that names the argument, from every function of otformer.theory."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from otformer import theory

INTERNAL = ("spread", "exp", "cost", "path", "sinkhorn_path")  # behind a check, or a generator of states
VECTOR = torch.zeros(3, dtype=torch.float64)
MATRIX = torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
GOOD = {
    "depth": 10,
    "n": 3,
    "steps": 5,
    "form": "corrected",
    "half_steps": 3,
    "start": (VECTOR, VECTOR),
    "solution": (VECTOR, VECTOR),
    "iterates": [(VECTOR, VECTOR)],
    "errors": VECTOR.new_tensor([0.5**k for k in range(9)]),
    "q": VECTOR + 1,
    "other": VECTOR + 1,
}
NUMBERS = math.nan, math.inf, -1.0, 0, 3.5, 1e308, True
OTHERS = None, "x", [1, 2], [[1.0], [2.0, 3.0]], torch.ones(2, 3), torch.tensor(math.nan)


def functions() -> dict[str, Callable[..., Any]]:
    modules = [importlib.import_module(f"otformer.theory.{each.name}") for each in pkgutil.iter_modules(theory.__path__)]
    return {
        name: each
        for module in modules
        for name, each in vars(module).items()
        if inspect.isfunction(each) and each.__module__ == module.__name__ and name not in INTERNAL and name[0] != "_"
    }


def arguments(function: Callable[..., Any]) -> dict[str, Any]:
    """Arguments that the function accepts, those without a default."""
    needed = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    scalars = {"sigma": 0.5, "tau": 0.5}
    return {e.name: scalars.get(e.name, 1.0) if e.annotation == "float" else GOOD.get(e.name, MATRIX) for e in needed}


def numbers(result: Any) -> list[float]:
    """The floats in a result: a number, a tensor, a tuple of them."""
    if isinstance(result, torch.Tensor):
        return list(result.double().flatten().tolist())
    if isinstance(result, tuple):
        return [x for each in result for x in numbers(each)]
    return [result] if isinstance(result, float) else []


@pytest.mark.parametrize("name", functions())
@pytest.mark.parametrize("bad", [*NUMBERS, *OTHERS], ids=str)
def test_one_line_that_names_the_argument_or_a_number(name: str, bad: Any) -> None:
    function = functions()[name]
    given = inspect.signature(function).parameters
    for argument in [each.name for each in given.values() if each.annotation != "bool"]:
        said, result = f"{argument}: accepted", None
        try:
            result = function(**{**arguments(function), argument: bad})
        except ValueError as error:
            said = str(error)
        assert any(re.search(rf"\b{each}\b", said) for each in given)
        assert "\n" not in said
        assert not any(map(math.isnan, numbers(result)))


@pytest.mark.parametrize("name", functions())
def test_the_arguments_of_this_test_are_accepted(name: str) -> None:
    assert functions()[name](**arguments(functions()[name])) is not None
