"""What a barycenter returns: its points, the plans to the clouds, and whether the points still move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from otformer.show.card import Card, Picture, Shown
from otformer.show.curve import Curve
from otformer.show.points import MOST, Points
from otformer.transport.result.result import Result

CLOUDS_DRAWN = 6


@dataclass(frozen=True, eq=False, repr=False)
class Barycenter(Shown):
    r"""The points of a barycenter, with its error and convergence.

    Attributes
    ----------
    points : array (n, d)
        Its support x; numpy if the clouds were, a tensor if they were tensors.
    b : array (n,)
        The weights of the points, with sum 1.
    value : float
        The minimised sum Σ_k w_k OT(x, y_k) at these points; if debiased, Σ_k w_k D(x, y_k).
    error : float
        The root mean square distance by which the next step would move the points, in units of the clouds' radius.
    converged : bool
        error ≤ tol, and every plan has converged: no small move lowers the value. A lower value may exist elsewhere.
    steps : int
        The number of times the plans to all clouds were computed.
    errors : list of float
        ``error`` of every step that lowered the value; the last one is ``error``.
    results : list of Result
        The transport from the points to each cloud; None for a cloud whose weight is 0.
    clouds, weights : list
        The clouds as they were given, and their weights, with sum 1.
    """

    points: Any
    b: Any
    value: float
    error: float
    converged: bool
    steps: int
    errors: list[float]
    results: list[Result | None]
    clouds: list[Any]
    weights: Sequence[float]
    kind: str

    @property
    def status(self) -> str:
        """One line: whether it converged, and the length of the next step."""
        return (
            f"{'converged' if self.converged else 'NOT converged'}: the next step moves the points by {self.error:.2g} radii"
        )

    def __repr__(self) -> str:
        n, d = self.points.shape
        size, steps = f"{_count(n, 'point')} in {d}-D", _count(self.steps, "step")
        return f"Barycenter({size} of {_counted(self.clouds)}, value {self.value:.6g}, {self.status}, {steps})"

    def plot(self, ax: Any = None) -> Any:
        """Draw the points and the first cloud; with more than two coordinates, draw the error of every step.

        >>> from otformer import barycenter
        >>> barycenter([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]]).plot().get_title("left")
        'to cloud 1, weight 0.5'
        """
        return self._plot(ax)

    def save(self, path: Any) -> None:
        """Write a page (.html) that shows the barycenter, or what `plot` draws as a picture (.png, .svg, .pdf)."""
        self._save(path)

    def _card(self) -> Card:
        n, d = self.points.shape
        facts = {"points": f"{n:,}, of {d} coordinates", "clouds": _counted(self.clouds), "value": f"{self.value:.8g}"}
        facts |= {"transport": self.kind, "steps": str(self.steps)}
        pictures: list[Picture] = [*self._drawn_clouds(), self._curve()]
        about = "Minimised: Σ w OT(x, y) over the points x, for clouds y of weights w."
        return Card("Barycenter", facts, pictures, self.status, self.converged, heading="Barycenter", about=about)

    def _curve(self) -> Curve:
        return Curve(range(len(self.errors)), self.errors, "how far the points move", "in radii, logarithmic", "step")

    def _drawn_clouds(self) -> list[Picture]:
        """The barycenter beside each of the first clouds, with lines where the plan is heavy."""
        drawn: list[Picture] = []
        x = _plain(self.points)
        for k, (cloud, found) in enumerate(zip(self.clouds, self.results, strict=True), 1):
            if found is None or x.shape[1] > 2 or max(len(x), len(cloud)) > MOST or len(drawn) == CLOUDS_DRAWN:
                continue
            plan = getattr(found, "dense", lambda found=found: found.plan)()
            drawn.append(Points(x, _plain(cloud), _plain(plan), f"to cloud {k}, weight {self.weights[k - 1]:.3g}"))
        return drawn


def _plain(array: Any) -> np.ndarray:
    return np.asarray(array.detach().cpu() if isinstance(array, Tensor) else array, np.float64)


def _counted(clouds: list[Any]) -> str:
    sizes = sorted({len(cloud) for cloud in clouds})
    span = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return f"{_count(len(clouds), 'cloud')} of {span} point{'s' * (sizes != [1])}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
