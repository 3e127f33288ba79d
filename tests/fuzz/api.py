"""Calls of public functions on hostile input. A family draws its input and checks its answer; a ValueError of one line is an
answer too, everything else that is raised a finding."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import otformer
from fuzz import entropic, exact, language, layers, networks, own_text, public, training
from fuzz.inputs import Rng, drawn

SRC = str(Path(otformer.__file__).parent)
MODULES = (entropic, exact, networks, layers, training, language, own_text)
FAMILIES: dict[str, Callable[[Rng, list[Any]], None]] = {each.__name__: each for room in MODULES for each in room.FAMILIES}


def run(family: str, seed: int) -> str:
    """One case: ``answered``, or ``refused`` in one line; raises what is a finding."""
    rng = drawn(family, seed)
    torch.manual_seed(seed)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            FAMILIES[family](rng, told)
    except ValueError as error:
        refused = error
    else:
        return "answered"
    said = str(refused)
    assert len(said.splitlines()) == 1, f"a refusal of no or several lines: {said[:200]}"
    assert ours(refused), f"a refusal in another library's words: {said[:200]}"
    return "refused"


def ours(error: ValueError) -> bool:
    """Whether a line of otformer's says ``raise``, not something that it called; scipy's name has scipy's words."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (SRC in last.filename and str(last.line).startswith("raise")) or "like_scipy" in last.filename


def never_tried() -> list[str]:
    """Public names that no family reads, by the source of the families."""
    return sorted(set(public.names()) - public.read_by(MODULES))
