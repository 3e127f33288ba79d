"""What a solve returns. It never needs its solver again."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.memory import Need, matrices, needs
from otformer.show.card import Card, Picture, Shown
from otformer.show.coarse import CELLS, ENTRIES, Array, blocks
from otformer.show.heat import Heat, checked_labels
from otformer.show.points import MOST, Points, checked_points, sampled
from otformer.transport.result.description import Description

if TYPE_CHECKING:
    from otformer.transport.costs.rounding import Rounded
    from otformer.transport.result.known_points import KnownPoints

PAGE_CELLS, FINE = 64, 1024  # cells on a side: of a page, of a picture by matplotlib
OF_EXACT_RESULTS = ("permutation", "gap", "bound", "pairs", "rounds", "dense")
JOINED_POINTS = "transport plan between the points"


@dataclass(frozen=True, eq=False, repr=False)
class Result(Shown):
    r"""A transport plan with its errors and potentials, in the same form for every solver.

    Attributes
    ----------
    plan : array (n, m)
        P. Arrays are numpy if the input was, tensors if it was tensors. A streamed result has a `StreamedPlan`, with
        products, sums and rows, but no matrix; a sharded result has the rows of this rank. The plan is formed on first
        access.
    potentials : (u (n,), v (m,))
        P_ij = exp((u_i + v_j − C_ij)/λ − 1) for balanced problems; −inf where a weight is 0. Always in float64: they
        determine the plan, and can start a similar problem.
    value, value_linear : number
        Σ P C + λ Σ P log P (for a variant: its own objective), and Σ P C alone, computed on first access.
    marginal_error : float
        Σ_i |Σ_j P_ij − a_i| + Σ_j |Σ_i P_ij − b_j|, computed in float64 from the plan above.
    error : float
        The number compared with ``tol``: the marginal error. Unbalanced and partial problems, whose marginals differ from a
        and b by design, have their own errors.
    converged : bool
        Whether error < tol (for a balanced problem of mass below 1, tol times the mass).
    mass : float
        Σ P.
    depth : int
        The number of layers run; each is one pass over the cost.
    method : str
        The name of the solver.

    Input in float16 or bfloat16 is solved as float32, and its plan, value and products are float32. The entries of a plan,
    about 1/(nm), are too small for float16, and with three digits they would not have the marginals reported here.

    POT's names work too: ``potential_a``, ``potential_b``, ``marginals``, ``marginal_a``, ``marginal_b``, ``status`` and
    ``log``.
    """

    potentials: tuple[Any, Any]
    value: Any
    marginal_error: float
    converged: bool
    depth: int
    method: str
    mass: float
    error: float
    parts: dict[str, Any] = field(default_factory=dict)  # plan and value_linear, or functions that make them

    @property
    @needs(lambda self, **_: self._need())
    def plan(self) -> Any:
        return self._part("plan")

    @property
    def value_linear(self) -> Any:
        return self._part("value_linear")

    def _part(self, name: str) -> Any:
        found = self.parts[name]
        if isinstance(found, partial):
            with torch.inference_mode(False), torch.enable_grad():  # whoever reads it first, it has its derivatives
                found = self.parts[name] = found()
        return found

    def _need(self) -> Need:
        n, m = (len(t) for t in self.potentials)
        return Need(matrices("plan", n, m), 3 * n * m, "potentials take less, and a streamed plan gives its rows")

    @property
    def potential_a(self) -> Any:
        return self.potentials[0]

    @property
    def potential_b(self) -> Any:
        return self.potentials[1]

    @property
    def marginal_a(self) -> Any:
        """Row sums of the plan, (n,)."""
        return self._sums(1)

    @property
    def marginal_b(self) -> Any:
        """Column sums of the plan, (m,)."""
        return self._sums(0)

    def _sums(self, axis: int) -> Any:
        return self.plan.sum(axis)

    @property
    def marginals(self) -> tuple[Any, Any]:
        return self.marginal_a, self.marginal_b

    @property
    def status(self) -> str:
        """One line: whether it converged, and its error."""
        own = "" if self.error == self.marginal_error else f", mass {self.mass:.4g}"
        name = "marginal error" if not own else "error"
        return f"{'converged' if self.converged else 'NOT converged'}: {name} {self.error:.2g}{own}"

    @property
    def log(self) -> dict[str, Any]:
        facts = {"depth": self.depth, "method": self.method, "mass": self.mass}
        return {"err": [self.error], "u": self.potentials[0], "v": self.potentials[1], **facts}

    if not TYPE_CHECKING:  # mypy knows the attributes as they are

        def __getattr__(self, name: str) -> Any:
            if name in OF_EXACT_RESULTS:
                raise AttributeError(f"{name} is an attribute of exact results: solve(…, reg=0)")
            return object.__getattribute__(self, name)  # raises what it has raised before, in a property too

    def apply(self, vector: Any) -> Any:
        """P @ vector, for a vector (m,) or columns (m, k); numpy or tensor, as the plan."""
        return self.plan @ self._columns("vector", vector)

    def map(self, values: Any) -> Any:
        """The barycentric map Σ_j P_ij values_j / Σ_j P_ij, values (m,) or (m, k); 0 for points without mass.

        Means of float16 or bfloat16 values are within their range, and have their dtype.

        >>> from otformer import solve
        >>> solve([[0.0, 1.0], [1.0, 0.0]], reg=0.01).map([[5.0, 6.0], [7.0, 8.0]]).tolist()
        [[5.0, 6.0], [7.0, 8.0]]
        """
        columns = self._columns("values", values)
        kind: Any = torch if isinstance(columns, Tensor) else np
        ones = kind.ones_like(columns.sum(-1) if columns.ndim == 2 else columns)
        sums = self.plan @ kind.column_stack([columns, ones])  # values and masses in one product
        mass = sums[:, -1:]
        mapped = sums[:, :-1] / (mass + (mass == 0))
        return checks.as_low(mapped if columns.ndim == 2 else mapped[:, 0], values)

    def transform(self, points: Any, values: Any = None, *, inverse: bool = False) -> Any:
        r"""The images of new points under the plan: T(x) = Σ_j softmax_j((v_j − c(x, y_j))/λ) y_j.

        For an exact result, T(x) is the y_j with the least c(x, y_j) − g_j.

        Parameters
        ----------
        points : array (k, d)
            New points on the side of X_a. At X_a itself the result is ``map(X_b)``, up to the marginal error.
        values : array (m,) or (m, c), optional
            Values to carry instead of the points X_b, for example labels as one-hot rows, or colours.
        inverse : bool
            Whether the points are on the side of X_b and are mapped to X_a.

        `solve_sample` and `solve_streamed` give such results: balanced, without mask or labels, for a metric by name or a
        function. The result keeps the points given to them without a copy. Costs are computed in blocks: memory is O(k + m).
        T is differentiable in tensors ``points`` and ``values``; X_a, X_b and the potentials are constants here.

        >>> from otformer import solve_sample
        >>> solve_sample([[0.0], [1.0]], [[5.0], [7.0]], reg=0.01).transform([[0.1], [2.0]]).round(6).tolist()
        [[5.0], [7.0]]
        >>> solve_sample([[0.0], [1.0]], [[5.0], [7.0]], reg=0).transform([[6.8]], inverse=True).tolist()
        [[1.0]]
        """
        from otformer.transport.result.new_points import transported

        known = self._known("transform")
        reg, pairs = float(self.parts["asked"].reg), getattr(self, "pairs", None)  # an exact plan is a list of pairs
        return transported(known, reg, self.potentials, pairs, points, values, inverse)

    def interpolate(self, t: float) -> tuple[Any, Any]:
        """The points (k, d) and their masses (k,) on the way from X_a, at t = 0, to X_b, at t = 1.

        For an exact plan every pair with mass is a point, (1 − t) x_i + t y_j. For an entropic plan they are the n points
        (1 − t) x_i + t T(x_i), which contract towards the means T(x_i). The same results are supported as by `transform`.

        >>> from otformer import solve_sample
        >>> points, masses = solve_sample([[0.0], [1.0]], [[5.0], [7.0]], reg=0).interpolate(0.5)
        >>> points.ravel().tolist(), masses.tolist()
        ([2.5, 4.0], [0.5, 0.5])
        """
        from otformer.transport.result.new_points import between

        known, pairs = self._known("interpolate"), getattr(self, "pairs", None)
        if checks.not_negative("t", t) > 1:
            raise checks.ArgumentError("t", "be between 0 and 1", repr(t))
        if pairs is not None:
            return between(known, float(t), None, None, pairs)
        return between(known, float(t), self.map(known.X_b), self.marginal_a, None)

    def _known(self, verb: str) -> KnownPoints:
        """The points of the result; where there are none, ``verb`` is refused."""
        known: KnownPoints | None = self.parts.get("known_points")
        if known is None:
            possible = "a result of solve_sample or solve_streamed, balanced, for a metric by name or a function"
            asked: Description | None = self.parts.get("asked")
            lacks = "masked, or with labels" if asked and asked.balanced else "unbalanced"
            got = f"one that is {lacks}" if asked and asked.dim else "one without points"
            raise checks.ArgumentError(verb, f"be asked of {possible}, without mask or labels", got)
        return known

    @needs(lambda self, **_: self._need())
    def rounded(self) -> Rounded:
        r"""A plan with exact marginals, and a bound on its distance from the optimum of min Σ P C.

        Rows and columns of P that carry too much are scaled down, diag(s) P diag(t), and what is then missing,
        e = a − P1 and d = b − Pᵀ1, is added as e dᵀ/‖e‖₁. Potentials with f_i + g_j ≤ C_ij bound the optimum from below:

            Σ a_i f_i + Σ b_j g_j  =  bound  ≤  optimum  ≤  value  =  Σ P C,      gap = value − bound.

        The gap is of order λ. It takes a few passes over the costs; a streamed result needs O(n + m) memory.

        Returns
        -------
        Rounded
            ``plan`` (n, m), ``value``, ``bound``, ``gap``, ``marginal_error`` and ``potentials`` (f (n,), g (m,)).

        Raises
        ------
        ValueError
            If the result is unbalanced, partial, sharded or one of a stacked batch; or if the plan is so far from its
            marginals that what is missing would have to use forbidden pairs.

        Examples
        --------
        >>> from otformer import solve
        >>> r = solve([[0.0, 1.0], [1.0, 0.2]], reg=0.2, tol=1e-2).rounded()
        >>> r.plan.sum(1).tolist(), r.bound <= 0.1 <= r.value, r.value - r.bound < 0.02
        ([0.5, 0.5], True, True)
        """
        if "rounded" not in self.parts:
            known = "a balanced result of a cost matrix or of points"
            raise checks.ArgumentError("rounded", f"be asked of {known}, which knows its costs", f"one of {self.method}")
        found: Rounded = self._part("rounded")
        return found

    def plot(self, x: Any = None, y: Any = None, *, labels: Any = None, ax: Any = None) -> Any:
        """Draw the plan: a matrix, or with the points x (n, d) and y (m, d), d ≤ 2, lines between them.

        labels : two lists of texts for the rows and the columns.   ax : axes of matplotlib to draw on. Returns the axes.

        >>> from otformer import solve
        >>> solve([[0.0, 1.0], [1.0, 0.0]], reg=0.1).plot().get_title("left")
        'transport plan'
        """
        return self._plot(ax, x=x, y=y, labels=labels, cells=FINE)

    def save(self, path: str | Path, x: Any = None, y: Any = None, *, labels: Any = None) -> None:
        """Write a page (.html) that shows the plan, or what `plot` draws as a picture (.png, .svg, .pdf).

        Of `solve_sample` and `solve_streamed` a page shows the points as well, if they have one or two coordinates: the
        result keeps up to 20,000 points per side. Larger clouds, and those of `solve`, are drawn if given here.
        """
        cells = PAGE_CELLS if checks.path("path", path).suffix.lower() in (".html", ".htm") else FINE
        self._save(path, x=x, y=y, labels=labels, cells=cells)

    def _card(self, x: Any = None, y: Any = None, labels: Any = None, cells: int = CELLS) -> Card:
        n, m = shape = len(self.potentials[0]), len(self.potentials[1])
        if (x is None) != (y is None):
            raise ValueError(f"{'x' if x is None else 'y'} is missing: points are given on both sides, or not at all")
        asked: Description | None = self.parts.get("asked")
        given = None if x is None else (checked_points("x", x, n), checked_points("y", y, m))
        sides = given
        if given is None and asked is not None and asked.points is not None:
            sides = checked_points("x", asked.points[0], n), checked_points("y", asked.points[1], m)
        labels, drawn = checked_labels(labels, shape), self._drawn(cells)
        pictures: list[Picture] = (
            [] if drawn is None else [Heat(drawn, "transport plan", shape, labels=labels, sums=True, by_partner=True)]
        )
        if sides is not None and n * m:  # first where they were given to be drawn
            pictures.insert(0 if given is not None else len(pictures), self._joined(*sides))
        size = "has no entries" if not n * m else f"has {n * m:.3g} entries, more than {ENTRIES:.2g}"
        note = "" if pictures else f"the plan {size}, and is not drawn"
        facts = {"plan": f"{n:,} × {m:,}", "mass": f"{self.mass:.6g}", "value": f"{self.value:.8g}"}
        about = "" if asked is None else asked.sentence()
        facts |= {"λ": f"{float(asked.reg):.4g}"} if asked is not None and float(asked.reg) else {}
        heading = f"{self._kind} transport plan, {n:,} × {m:,}"
        facts |= self._effort()
        return Card(type(self).__name__, facts, pictures, self.status, bool(self.converged), note, heading, about)

    _kind = "Entropic"

    def _joined(self, x: Array, y: Array) -> Points:
        """The points, and lines where the plan is heavy; of more than a thousand some of both."""
        whole = self._drawn(MOST) if max(len(x), len(y)) <= MOST else None
        return sampled(x, y, self._row, JOINED_POINTS) if whole is None else Points(x, y, whole, JOINED_POINTS)

    def _row(self, i: int) -> Array:
        """Row i of the plan, (m,)."""
        row = self.plan.rows(i, i + 1)[0] if self._streamed else self.plan[i]
        return np.asarray(row.detach().cpu() if isinstance(row, Tensor) else row, np.float64)

    def _effort(self) -> dict[str, str]:
        """What it took, for the card."""
        return {"layers": f"{self.depth}, {self.method}"}

    def _drawn(self, cells: int) -> Array | None:
        """The plan in blocks; None if it is too large to be formed for that."""
        n, m = (len(t) for t in self.potentials)
        return blocks(self.plan, cells, by_partner=True) if 0 < n * m <= ENTRIES else None

    @property
    def _streamed(self) -> bool:
        """Whether the plan is an operator, which gives rows and products."""
        return hasattr(self.plan, "rows")

    def _columns(self, name: str, given: Any) -> Any:
        """Check vectors that the plan is applied to, and convert them to its array type."""
        plan = self.plan
        in_numpy = not isinstance(plan, Tensor) and not self._streamed
        if in_numpy:
            checks.no_tangents("this result is numpy's", **{name: given})
        dense = isinstance(plan, np.ndarray)
        array: Any = checks.plain(name, given, "an array") if dense else checks.tensor(name, given)
        checks.vectors(name, array, plan.shape[1])
        if isinstance(plan, Tensor):
            return array.to(plan.device, plan.dtype)
        return np.asarray(array) if in_numpy else array

    def __repr__(self) -> str:
        n, m = len(self.potentials[0]), len(self.potentials[1])
        how = f" after {self.depth} layers of {self.method}" if self.depth else f", {self.method}"
        return f"Result({n}×{m} plan, value {self.value:.6g}, {self.status}{how})"
