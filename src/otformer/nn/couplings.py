"""Pairs of points by optimal transport, for flow matching: `OTPlanSampler`, with torchcfm's interface.

An exact coupling of n points x_i with m points y_j, all of a side equally heavy, is a list of at most n + m − 1 pairs (i, j)
with masses, and a permutation where n = m: a `Coupling`. Pairs are drawn from the list, and no n × m plan is formed.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Generator, Tensor

from otformer import callers, checks
from otformer.errors import ArgumentError
from otformer.memory import Need, matrices, needs
from otformer.nn.coupling import Coupling, draw_places, generator_of
from otformer.nn.coupling_points import Batch, Labels, check_carried, optimal_pairs, read_labels, read_points, squares, taken
from otformer.nn.coupling_ranks import couple_ranks
from otformer.nn.inputs import SMALLER, kind
from otformer.transport.compat.like_scipy import linear_sum_assignment
from otformer.transport.costs.ranks import TIMEOUT, Ranks
from otformer.transport.needs import SOLVE
from otformer.transport.solve import eager, solve
from otformer.transport.variants.partial import solve_partial
from otformer.transport.variants.unbalanced import solve_unbalanced

METHODS = ("exact", "sinkhorn", "unbalanced", "partial")


class OTPlanSampler:
    """Draw pairs of points x0 (n, \\*dim) and x1 (m, \\*dim) from a transport plan of ‖x0_i − x1_j‖², weights 1/n and 1/m.

    It replaces torchcfm's class of this name. Tensors stay on their device, and keep their shape, dtype and graph; the
    couplings themselves have no gradient.

    method : "exact"; "sinkhorn", `solve` with ``reg``; "unbalanced", `solve_unbalanced` with ``reg`` and ``reg_m``;
        "partial", `solve_partial` with ``reg``.
    normalize_cost : divide costs by the greatest. Exact couplings do not change.
    num_threads : accepted as in torchcfm, without effect; torch and numba set the threads.
    warn : whether to warn of points left out, of plans without mass, and of solves that did not reach their tolerance.
    match_labels : whether `sample_plan_with_labels` pairs only points of equal labels; torchcfm only carries labels along.
    generator : a `torch.Generator`, on any device, or a seed. By default torch's own.

    >>> OTPlanSampler("sinkhorn", reg=0.1)
    OTPlanSampler('sinkhorn', reg=0.1)
    >>> x0, x1 = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[2.1], [0.1], [1.1]])
    >>> [t.tolist() for t in OTPlanSampler("exact").pairs(x0, x1)]
    [[0, 1, 2], [1, 2, 0]]
    >>> y0, y1 = OTPlanSampler("exact", generator=0).sample_plan(x0, x1)
    >>> (y1 - y0).round(decimals=4).flatten().tolist()
    [0.10000000149011612, 0.10000000149011612, 0.10000000149011612]
    """

    def __init__(
        self, method: str = "exact", reg: float = 0.05, reg_m: float | tuple[float, float] = 1.0,
        normalize_cost: bool = False, num_threads: int | str = 1, warn: bool = True, *, match_labels: bool = False,
        generator: Generator | int | None = None,
    ) -> None:  # fmt: skip
        self.method, self.reg = checks.choice("method", method, METHODS), checks.positive("reg", reg)
        self.reg_m, self.normalize_cost, self.warn, self.match_labels = reg_m, normalize_cost, warn, match_labels
        self.num_threads = num_threads if num_threads == "max" else checks.count("num_threads", num_threads)
        self.generator = generator_of(generator)

    def __repr__(self) -> str:
        used = {"exact": (), "unbalanced": ("reg", "reg_m")}.get(self.method, ("reg",))
        return f"OTPlanSampler({', '.join([repr(self.method), *(f'{name}={getattr(self, name)!r}' for name in used)])})"

    @eager
    @needs(lambda x0, x1, **_: _need(x0, x1))
    def table(self, x0: Tensor, x1: Tensor, y0: Labels = None, y1: Labels = None) -> Coupling:
        """Compute the exact coupling of a batch or of whole data sets; with labels y0 (n,), y1 (m,), only of equal labels.

        Every label is a separate problem. If a label has different shares on the two sides, the larger side keeps its share
        (x1 if both sizes are equal), so that its points keep equal weights. Points whose label the other side lacks are
        left out, with a warning.

        >>> x0, x1 = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[2.0], [1.0], [0.0]])
        >>> table = OTPlanSampler().table(x0, x1, torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]))
        >>> table.i.tolist(), table.j.tolist(), table.masses.round(decimals=3).tolist()
        ([0, 0, 1, 2], [0, 1, 2, 2], [0.333, 0.333, 0.167, 0.167])
        """
        if self.method != "exact":
            raise ArgumentError(
                "method", "be 'exact' for a list of pairs", repr(self.method), "sample_plan draws from any plan"
            )
        x, y = read_points(x0, x1)
        found = []
        for part in self._parts(x, y, y0, y1):
            i, j, masses = optimal_pairs(part.x, part.y)
            found.append((part.rows[i], part.columns[j], part.share * masses))
        i, j, masses = (torch.cat(t) for t in zip(*found, strict=True))
        order = i.argsort(stable=True)
        return Coupling(i[order], j[order], masses[order], (len(x), len(y)))

    def pairs(self, x0: Tensor, x1: Tensor, y0: Labels = None, y1: Labels = None) -> tuple[Tensor, Tensor]:
        """Pairs (i, j) of the exact coupling: every point of the larger side once, or of both sides if n = m
        (`Coupling.once`)."""
        return self.table(x0, x1, y0, y1).once(self.generator)

    @eager
    @needs(lambda x0, x1, **_: _need(x0, x1))
    def get_map(self, x0: Tensor, x1: Tensor, y0: Labels = None, y1: Labels = None) -> Tensor:
        """The plan (n, m) as a float64 tensor (torchcfm: a numpy array); with labels, only of equal labels."""
        if self.method == "exact":
            table = self.table(x0, x1, y0, y1)
            plan = table.masses.new_zeros(table.shape)
            return plan.index_put_((table.i, table.j), table.masses)
        x, y = read_points(x0, x1)
        plan = x.new_zeros(len(x), len(y))
        for part in self._parts(x, y, y0, y1):
            plan[part.rows[:, None], part.columns] = part.share * self._entropic(part.x, part.y)
        if plan.numel() and not float(plan.sum()) > 0:
            self._say("the plan has no mass, so all pairs are drawn alike: raise reg_m, or set normalize_cost")
            plan.fill_(1 / plan.numel())
        return plan

    def sample_map(self, pi: Any, batch_size: int, replace: bool = True) -> tuple[Any, Any]:
        """Draw (i, j), [batch_size] each, from a plan (n, m), array or tensor; without replacement no pair occurs twice."""
        plan = checks.tensor("pi", pi).detach()
        if plan.ndim != 2 or not plan.numel() or bool((plan < 0).any()):
            raise ArgumentError("pi", "be a plan (n, m) of non-negative numbers", f"shape {tuple(plan.shape)}")
        at = draw_places(plan.double().flatten(), checks.count("batch_size", batch_size, 0), replace, self.generator)
        i, j = at // plan.shape[1], at % plan.shape[1]
        return (i, j) if isinstance(pi, Tensor) else (i.numpy(), j.numpy())

    def sample_plan(self, x0: Tensor, x1: Tensor, replace: bool = True) -> tuple[Tensor, Tensor]:
        """Draw n pairs (x0[i], x1[j]). Without replacement an exact coupling of n with n points gives every point once."""
        return self._sampled(x0, x1, None, None, replace)[:2]

    def sample_plan_with_labels(
        self, x0: Tensor, x1: Tensor, y0: Labels = None, y1: Labels = None, replace: bool = True
    ) -> Batch:
        """Draw n pairs (x0[i], x1[j], y0[i], y1[j]); a y that is None stays None. See ``match_labels``."""
        return self._sampled(x0, x1, y0, y1, replace)

    def sample_plan_with_scipy(self, x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
        """Return (x0, x1[j]) of the best one-to-one map, without sampling; with n ≠ m, points of the larger side are left
        out."""
        x, y = read_points(x0, x1)
        i, j, _ = optimal_pairs(x, y) if len(x) == len(y) else (*linear_sum_assignment(squares(x, y)), None)
        return x0[i], x1[j]

    def sample_trajectory(self, X: Tensor) -> Tensor:
        """Follow every X[:, 0] through the times of X (B, T, \\*dim), from each to the next by a plan: a tensor like X."""
        if not isinstance(X, Tensor) or X.ndim < 3 or not X.shape[1]:
            raise ArgumentError("X", "be a tensor of shape (B, T, *dim)", kind(X))
        if not len(X):
            return X
        places = [torch.arange(len(X), device=X.device)]
        for x0, x1 in zip(X[:, :-1].unbind(1), X[:, 1:].unbind(1), strict=True):
            if self.method == "exact":
                places.append(self.table(x0, x1).j[places[-1]])
            else:
                places.append(draw_places(self.get_map(x0, x1)[places[-1]], 1, True, self.generator)[:, 0])
        return torch.stack([X[at, t] for t, at in enumerate(places)], 1)

    def sample_plan_across_ranks(
        self, x0: Tensor, x1: Tensor, y0: Labels = None, y1: Labels = None,
        group: dist.ProcessGroup | None = None, timeout: float = TIMEOUT,
    ) -> Batch:  # fmt: skip
        """Return (x0, x1, y0, y1) of this rank, from one coupling of the batches of all ranks of a group; every rank calls
        this.

        A rank gets the pairs of its own points of the larger side (x1 if both sizes are equal over all ranks): as many as
        it gave. With y0 and y1 and ``match_labels`` only equal labels are paired. The returned tensors have no graph.
        ``timeout``: seconds that one rank waits for another; the first rank solves.
        """

        def pairs(x0: Tensor, x1: Tensor, y0: Labels, y1: Labels) -> tuple[Tensor, Tensor]:
            return self.pairs(x0, x1, *self._matched(y0, y1))

        return couple_ranks(Ranks(group, timeout), pairs, x0, x1, y0, y1)

    def _matched(self, y0: Labels, y1: Labels) -> tuple[Labels, Labels]:
        """The labels by which pairs are restricted."""
        return (y0, y1) if self.match_labels else (None, None)

    def _sampled(self, x0: Tensor, x1: Tensor, y0: Labels, y1: Labels, replace: bool) -> Batch:
        check_carried(x0, x1, y0, y1)
        labels = self._matched(y0, y1)
        if self.method == "exact":
            i, j = self.table(x0, x1, *labels).draw(len(x0), replace, self.generator)
        else:
            plan = self.get_map(x0, x1, *labels)
            i, j = self.sample_map(plan, len(x0), replace) if plan.numel() else plan.nonzero().unbind(1)
        return taken(x0, x1, y0, y1, i, j)

    def _entropic(self, x: Tensor, y: Tensor) -> Tensor:
        """The plan [n, m] of a method that is not exact."""
        C = squares(x, y)
        if self.normalize_cost and C.numel():
            C /= C.max().clamp_min(torch.finfo(C.dtype).tiny)
        with contextlib.nullcontext() if self.warn else warnings.catch_warnings():
            if not self.warn:
                warnings.simplefilter("ignore")
            if self.method == "unbalanced":
                plan = solve_unbalanced(C, reg=self.reg, reg_m=self.reg_m).plan
            else:
                plan = (solve if self.method == "sinkhorn" else solve_partial)(C, reg=self.reg).plan
        return plan

    def _parts(self, x: Tensor, y: Tensor, y0: Labels, y1: Labels) -> Iterator[_Part]:
        """The points of every label that both sides have; all points without labels."""
        n, m, device = len(x), len(y), x.device
        if (n == 0) != (m == 0):
            raise ArgumentError("x0 and x1", "both have points, or neither", f"{n} and {m}", "mass has nowhere to go")
        if y0 is None or y1 is None or not n:
            yield _Part(x, y, torch.arange(n, device=device), torch.arange(m, device=device), 1.0)
            return
        both = torch.cat([read_labels("y0", y0, n, device), read_labels("y1", y1, m, device)])
        labels = both.unique(return_inverse=True)[1]
        sizes = torch.stack([t.bincount(minlength=len(labels)) for t in labels.split([n, m])])  # [2, n + m]
        shared = (sizes > 0).all(0)
        left = sizes[:, ~shared].sum(1).tolist()
        if not bool(shared.any()):
            raise ArgumentError("y0 and y1", "have a label in common")
        if any(left):
            self._say(f"{left[0]} points of x0 and {left[1]} of x1 are left out: the other side lacks their labels")
        kept = (sizes[int(n <= m)] * shared).double()
        for label in shared.nonzero()[:, 0].tolist():
            rows, columns = ((t == label).nonzero()[:, 0] for t in labels.split([n, m]))
            yield _Part(x[rows], y[columns], rows, columns, float(kept[label] / kept.sum()))

    def _say(self, message: str) -> None:
        if self.warn:
            callers.warn(message)


class _Part(NamedTuple):
    """Points of x0 and of x1 that are coupled with each other, where they stand, and their share of the mass."""

    x: Tensor
    y: Tensor
    rows: Tensor
    columns: Tensor
    share: float


def _need(x0: Tensor, x1: Tensor) -> Need:
    n, m = len(x0), len(x1)
    return Need(matrices("cost", n, m), SOLVE * n * m, SMALLER)
