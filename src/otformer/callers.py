"""Speaking to the caller: warnings at their own line, however deep they are raised; keywords of another library."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

FOREIGN = {  # keywords of POT, OTT, GeomLoss and `AligningTransformer` -> what they are in the functions that solve
    "numItermax numInnerItermax max_iter max_iterations": "it is max_depth (2 layers an iteration), in barycenter max_steps",
    "stopThr threshold norm_error": "it is tol, the L1 marginal error",
    "epsilon eps": "it is reg, in the units of the cost",
    "blur": "it is reg, which is blur² for costs ½‖x − y‖², 2 blur² for ‖x − y‖²; SamplesLoss takes blur",
    "p": "it is metric='sqeuclidean' or 'euclidean'; SamplesLoss takes p",
    "method": "it is solver of solve and solve_sample: Newton(), Mixed() or Network(schedule)",
    "momentum lse_mode initializer inner_iterations min_iterations progress_fn": "not needed; solver= takes others",
    "dist cost_fn geom": "solve_sample takes metric=, a name or a function; solve takes the cost matrix",
    "x y xs xt Xs Xt": "points are X_a and X_b of solve_sample",
    "C cost_matrix": "the cost matrix is M, the first argument of solve",
    "warmstart potentials_init plan_init X_init init": "a start is potentials=(u, v), of an earlier result",
    "tau_a tau_b": "it is unbalanced=ρ with ρ = ε τ/(1 − τ)",
    "reg_m reach": "it is unbalanced=ρ; reach is ρ = reachᵖ",
    "unbalanced_type": "marginals are penalised by KL; others are in ot.solve",
    "reg_type c": "entropy is Σ P log P, or KL(P|a bᵀ) of solve_unbalanced; other regularisers are in ot.solve",
    "lazy": "it is executor='stream'",
    "rank": "plans have full rank; executor='stream' needs O(n + m) memory too",
    "batch_size": "blocks are chosen by the size; many problems are solve_batch",
    "debias": "it is divergence(x, y, reg=…), and barycenter(…, debiased=True)",
    "n_projections projections": "sliced distances are not here; ot.sliced_wasserstein_distance",
    "numThreads n_threads": "it is torch.set_num_threads",
    "center_dual check_marginals": "emd takes it",
    "grad": "results of tensors that require a gradient have it",
    "random_state": "nothing is drawn at random",
    "verbose": "nothing is printed; the result has depth, error and converged",
    "log": "the result has depth, error and potentials, and POT's log as result.log",
    "warn": "use warnings.filterwarnings",
    "scale scaling": "of solve reg is in the units of the cost: give reg=0.01*M.max()",
    "measures_locations measures_weights": "they are clouds and a",
}
KEYWORDS = {name: answer for names, answer in FOREIGN.items() for name in names.split()}
OURS = ("otformer", "torch", "contextlib")  # whose frames are passed over: torch calls `forward` between the user and us


def foreign_keyword(name: str, given: Iterable[str], own: Iterable[str]) -> str:
    """A replacement for a keyword of another library that the named function lacks; empty if there is none.

    >>> foreign_keyword("solve", ["reg", "stopThr"], ["reg", "tol"])
    "solve() has no keyword 'stopThr': it is tol, the L1 marginal error"
    """
    foreign = next((key for key in given if key in KEYWORDS and key not in own), None)
    return "" if foreign is None else f"{name}() has no keyword {foreign!r}: {KEYWORDS[foreign]}"


def own_keywords(function: F) -> F:
    """Decorate a function: a foreign keyword is answered with ours, in the TypeError that Python raises anyway.

    >>> own_keywords(lambda M, reg=0.1: M)(1, epsilon=0.2)
    Traceback (most recent call last):
    TypeError: <lambda>() has no keyword 'epsilon': it is reg, in the units of the cost
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            if said := foreign_keyword(function.__name__, kwargs, inspect.signature(function).parameters):
                raise TypeError(said) from None
            raise

    return call  # type: ignore[return-value]


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn at the nearest frame outside otformer, torch and contextlib.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     warn("not converged")
    >>> str(seen[0].message)
    'not converged'
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
