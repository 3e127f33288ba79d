"""A warning names the line of the code that called; names and keywords of other libraries are answered with ours."""

import inspect
import re
import sys
import warnings
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import ot
import pytest

import otformer
from needs import missing
from otformer import callers, elsewhere
from otformer.callers import warn
from otformer.elsewhere import KNOWN


def test_warning_passes_over_frames_of_otformer_and_torch() -> None:
    inner = {"__name__": "otformer.network.deep", "warn": warn}
    exec("def call():\n    warn('not converged')", inner)
    outer = {"__name__": "torch.nn.modules.module", "call": inner["call"]}
    exec("def run():\n    call()", outer)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        line = sys._getframe().f_lineno + 1
        outer["run"]()
    assert [(each.filename, each.lineno, each.category) for each in seen] == [(__file__, line, RuntimeWarning)]


WORDS = re.compile(r"\b(of|ot|ott)\.([\w.]*\w)")


@pytest.mark.parametrize(
    "name", [*KNOWN, "gromov_barycenters", "sliced_wasserstein_distance", "low_rank", "lowrank_sinkhorn"]
)
def test_a_name_of_another_library_is_answered(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"^module 'otformer' has no attribute '{name}': .*\(docs/not-here\.md\)$"):
        getattr(otformer, name)


def test_what_the_answers_name_exists() -> None:
    answers = " ".join([*map(elsewhere.instead, KNOWN), *elsewhere._STEMS.values(), *callers.KEYWORDS.values()])
    page = Path(__file__).parents[1] / "docs" / "not-here.md"
    found = set(WORDS.findall(answers + page.read_text("utf-8"))) - {("of", "gromov_wasserstein"), ("of", "EMDTransport")}
    assert len(found) > 30
    for library, path in found:
        if library == "ott":
            continue  # tests/transport/test_like_ott.py, where OTT is installed
        there: Any = {"of": otformer, "ot": ot}[library]
        for part in path.split("."):
            there = getattr(there, part)


@pytest.mark.parametrize("module", ["solvers.quadratic", "solvers.linear.sinkhorn_lr", "neural", "experimental.mmsinkhorn"])
def test_what_the_answers_name_of_ott_exists(module: str) -> None:
    pytest.importorskip("ott", reason=missing("ott"))
    assert module in " ".join(elsewhere._STEMS.values())
    assert find_spec(f"ott.{module}")


def test_other_names_are_unknown_as_before() -> None:
    with pytest.raises(AttributeError, match=r"^module 'otformer' has no attribute 'nothing'$"):
        _ = otformer.nothing


def calls() -> dict[str, Any]:
    M, x = np.eye(2), np.ones((2, 1))
    found = {name: partial(getattr(otformer, name), M) for name in ("solve", "solve_unbalanced", "solve_partial")}
    found |= {name: partial(getattr(otformer, name), x, x) for name in ("solve_sample", "solve_streamed", "divergence")}
    return found | {"solve_batch": partial(otformer.solve_batch, [M]), "barycenter": partial(otformer.barycenter, [x])}


@pytest.mark.parametrize("keyword", callers.KEYWORDS)
@pytest.mark.parametrize("name", calls())
def test_keywords_of_other_libraries_are_answered(name: str, keyword: str) -> None:
    call = calls()[name]
    if keyword in inspect.signature(call.func).parameters:
        return
    answer = re.escape(callers.KEYWORDS[keyword])
    with pytest.raises(TypeError, match=rf"^{name}\(\) has no keyword '{keyword}': {answer}$"):
        call(**{keyword: 1})
