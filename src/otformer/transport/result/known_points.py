"""What a result keeps of its points, so that new ones can be sent along (new_points.py)."""

from __future__ import annotations

from typing import Any, NamedTuple


class KnownPoints(NamedTuple):
    """The points of a result, as they were given and not copied; and how costs are made of them."""

    X_a: Any
    X_b: Any
    metric: Any
