"""Speaking to the caller: warnings at their own line, however deep they are raised; keywords of another library."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable

FOREIGN = {  # keywords of POT, and one of `AligningTransformer` -> what they are in the functions that solve
    "numItermax": "it is max_depth, in layers: two are one iteration",
    "max_iter": "it is max_depth, in layers: two are one iteration",
    "stopThr": "it is tol, the L1 marginal error",
    "verbose": "nothing is printed; the result has depth, error and converged",
    "log": "the result has depth, error and potentials, and POT's log as result.log",
    "method": "it is solver: Newton(), Mixed() or Network(schedule)",
    "warn": "use warnings.filterwarnings",
    "scale": "of solve reg is in the units of the cost: give reg=0.01*M.max()",
}
OURS = ("otformer", "torch", "contextlib")  # whose frames are passed over: torch calls `forward` between the user and us


def foreign_keyword(name: str, given: Iterable[str], own: Iterable[str]) -> str:
    """What to give in place of a foreign keyword that the function of this name does not have; empty if there is none.

    >>> foreign_keyword("solve", ["reg", "stopThr"], ["reg", "tol"])
    "solve() has no keyword 'stopThr': it is tol, the L1 marginal error"
    """
    foreign = next((key for key in given if key in FOREIGN and key not in own), None)
    return "" if foreign is None else f"{name}() has no keyword {foreign!r}: {FOREIGN[foreign]}"


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
