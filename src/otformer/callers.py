"""Warnings that point at the caller's own line, however deep inside the package they are raised."""

from __future__ import annotations

import sys
import warnings

OURS = ("otformer", "torch", "contextlib")  # whose frames are passed over: torch calls `forward` between the user and us


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
