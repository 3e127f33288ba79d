"""What a call on a small problem goes through."""

from __future__ import annotations

import sys
from typing import Any

import otformer as of
from oracles import problem


def test_a_small_problem_takes_few_functions_and_one_look_at_the_cost():
    """At most twenty functions of the package, one that keeps what was asked, and nothing goes from numpy to torch."""
    x, y, *_ = problem(10, 20, 20, 2)
    of.solve_sample(x, y, reg=0.01)
    functions: set[Any] = set()
    torch_calls: list[str] = []

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and "otformer" in frame.f_code.co_filename and not frame.f_code.co_name.startswith("<"):
            functions.add(frame.f_code)
        if event == "c_call" and getattr(argument, "__name__", "") in ("from_numpy", "as_tensor", "numpy", "tensor"):
            torch_calls.append(argument.__name__)

    sys.setprofile(watch)
    try:
        of.solve_sample(x, y, reg=0.01)
    finally:
        sys.setprofile(None)
    names = sorted(f"{code.co_filename.rsplit('otformer', 1)[1]}:{code.co_qualname}" for code in functions)
    assert len(names) <= 20 + 1, names
    assert torch_calls == []
