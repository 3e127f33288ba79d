r"""Labels: only points of equal labels, or only points of different labels, may match.

**Where there is a plan at all.** Let A_l and B_l be the masses of label l, and T = Σ A = Σ B. By Hall's condition the rows
of any set S of labels need as much mass among the columns they may go to, N(S):

- equal:       N(S) = S, so A_l ≤ B_l for every l, and as the sums agree A_l = B_l;
- different:   N({l}) is all but l, and N(S) is everything where S has two labels or more: A_l ≤ T − B_l for every l.

Equal labels are separate problems. As b is scaled to the mass of a elsewhere, here that of each label is: B_l is A_l but for
rounding, and a derivative in a or b does not depend on the constants that u and v have for each label. Where there are two
labels, to match the other one is to match an equal one once those of b are exchanged, and it is treated so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import checks, weight_checks
from otformer.transport.costs.clouds import Rule
from otformer.transport.problem.weights import Weights, scaled_to

SUM_ROUNDING = 2.0**-46  # of the mass: masses of labels that differ by less are equal, however small they are


class Labels(NamedTuple):
    """Labels as numbers 0, 1, …, one for each name; pairs match if theirs are equal (``same``), or if they differ."""

    a: Tensor  # [n], int64
    b: Tensor  # [m]
    same: bool
    names_a: list[Any]  # of each number, on the side of a
    names_b: list[Any]
    blocks: bool = False  # not labels that were given, but what the allowed pairs of points with mass connect

    def rule(self, root: bool = False) -> Rule:
        """As a stream reads them."""
        return Rule(root, (self.a, self.b) if len(self.names_a) > 1 else None, self.same)

    def allowed(self) -> Tensor:
        """A mask, [n, m]."""
        return Rule(same=self.same).may_match(self.a, self.b)

    def scaled(self, a: Tensor, target: Tensor) -> Tensor:
        """b scaled to the mass of a, label by label where labels are problems of their own, differentiably."""
        if not self.same:
            return scaled_to(a, target)
        sums_a, sums_b = (self._sums(w, at) for w, at in ((a, self.a), (target, self.b)))
        return target * (sums_a / sums_b)[self.b]

    def fitted(self, weights: Weights, device: torch.device | None, balanced: bool) -> tuple[Labels, Weights]:
        """Labels of the points that have mass, on their device, and weights for which there is a plan."""
        rows, columns = self.a, self.b
        if weights.support is not None and not self.blocks:
            support = weights.support.as_tensors(torch.device("cpu"))
            rows, columns = rows[support.rows], columns[support.columns]
        fit = self._replace(a=rows.to(device or "cpu"), b=columns.to(device or "cpu"))
        a, target = checks.local(weights.a), checks.local(weights.target)
        fit._check_partners()
        if not balanced:
            return fit, weights
        fit._check_masses(a, checks.local(weights.b))
        b = fit.scaled(a, target)
        return fit, weights._replace(b=b if isinstance(weights.b, Tensor) else b.numpy())

    def _sums(self, weights: Tensor, at: Tensor) -> Tensor:
        """The mass of every label, [labels]."""
        return weights.new_zeros(len(self.names_a)).index_add(0, at, weights)

    def _check_partners(self) -> None:
        """Every label that has mass may match one on the other side."""
        sides = (("a", self.a, self.b, self.names_a), ("b", self.b, self.a, self.names_b))
        for side, own, other, names in sides:
            has, offered = (torch.bincount(at, minlength=len(names)) > 0 for at in (own, other))
            lonely = has & ~offered if self.same else has & (offered.sum() == offered.long())
            if bool(lonely.any()):
                name = names[int(lonely.nonzero()[0])]
                raise ValueError(f"labels forbid every pair of the points of {side} labelled {name!r}, which have mass")

    def _check_masses(self, a: Tensor, b: Tensor) -> None:
        """Raise if a label has more mass than its partners can take (Hall's condition)."""
        A, B = self._sums(a, self.a), self._sums(b, self.b)
        total = float(A.sum())
        lacks = (
            ~(weight_checks.masses_agree(A, B) | ((A - B).abs() <= SUM_ROUNDING * total))
            if self.same
            else total * (1 + weight_checks.CLOSE_MASSES) < A + B
        )
        if not bool(lacks.any()):
            return
        label = int(lacks.nonzero()[0])
        names, masses = (self.names_a[label], self.names_b[label]), (float(A[label]), float(B[label]))
        if self.blocks:
            have = f"has mass {masses[0]:g} in a and {masses[1]:g} in b"
            where = f"the block of {names[0]} and {names[1]}, which match no others, {have}"
            raise checks.ArgumentError("M or mask", "allow a plan", advice=where)
        if self.same:
            pair = f"{names[0]!r} of a and {names[1]!r} of b, which match each other alone"
            raise checks.ArgumentError("labels", "have equal masses", advice=f"{pair}, have {masses[0]:g} and {masses[1]:g}")
        have = f"in a and b together at most the mass {total:g}, got {masses[0]:g} and {masses[1]:g}"
        raise checks.ArgumentError("labels", "leave room elsewhere", advice=f"{names[0]!r} must have {have}")


def read_labels(labels: Any, allow: Any, n: int, m: int) -> Labels | None:
    """A pair of labels [n] and [m], whole numbers or strings, checked; None if there are none."""
    same = checks.choice("allow", allow, ("equal", "different")) == "equal"
    if labels is None:
        if not same:
            raise checks.ArgumentError("allow", "be given with labels", "'different' without them")
        return None
    if not isinstance(labels, (tuple, list)) or len(labels) != 2:
        raise checks.ArgumentError("labels", "be a pair of arrays, of a and of b", _kind(labels))
    sides = [_read_side(k, given, size) for k, (given, size) in enumerate(zip(labels, (n, m), strict=True))]
    both = np.concatenate(sides)
    if n and m and ((sides[0].dtype.kind in "US") != (sides[1].dtype.kind in "US") or both.dtype.kind == "f"):
        raise checks.ArgumentError("labels", "be of one kind", f"dtypes {sides[0].dtype} and {sides[1].dtype}")
    names, numbers = np.unique(both, return_inverse=True)
    a, b = torch.from_numpy(numbers.astype(np.int64)).split([n, m])
    known = names.tolist()
    if not same and len(known) == 2:
        return Labels(a, 1 - b, True, known, known[::-1])
    return Labels(a, b, same, known, known)


def _read_side(k: int, given: Any, size: int) -> np.ndarray:
    name = f"labels[{k}]"
    if isinstance(given, Tensor):
        checks.no_transforms(name, given)
        given = given.detach().cpu().numpy()
    _check_kept_apart(name, given)
    array = checks.plain(name, given, "whole numbers or strings")
    if array.dtype == object and all(isinstance(label, str) for label in array.flat):
        _check_kept_apart(name, array.tolist())
        array = array.astype(str)
    if array.size and array.dtype.kind not in "biuUS":
        raise checks.ArgumentError(name, "be whole numbers or strings", f"dtype {array.dtype}")
    if array.shape != (size,):
        raise checks.ArgumentError(name, f"have shape ({size},)", array.shape)
    return array if array.size else array.astype(np.int64)


def _check_kept_apart(name: str, labels: Any) -> None:
    """Refuse labels that numpy would merge: trailing NUL, or integers beside strings."""
    if not isinstance(labels, (list, tuple)):
        return
    texts = [label for label in labels if isinstance(label, (str, bytes))]
    if wrong := [text for text in texts if text[-1:] in ("\0", b"\0")]:
        raise checks.ArgumentError(name, "not end in NUL, which numpy leaves out", repr(wrong[0]))
    if 0 < len(texts) < len(labels) or len({isinstance(text, str) for text in texts}) > 1:
        raise checks.ArgumentError(name, "be of one kind", f"{texts[0]!r} beside others")


def _kind(value: Any) -> str:
    return f"{len(value)} of them" if isinstance(value, (tuple, list)) else type(value).__name__
