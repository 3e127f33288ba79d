"""Checks of the Triton kernels on a CPU, in Triton's interpreter, which is chosen when triton is imported:

``TRITON_INTERPRET=1 python -m helpers.interpreted_kernels passes``; an error ends it.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import torch

import otformer as of
from helpers.gpu_streams import Case, case, check_pass, check_products, share_that_reads_all, steep
from oracles import marginal_error, problem, squared_cost
from otformer.transport.costs import points
from otformer.transport.costs.clouds import PLAIN, Rule
from otformer.transport.costs.gpu.kernel import OnGpu
from otformer.transport.costs.gpu.layout import DOUBLE, MIXED, SINGLE

ROOT, DIFFERENT = Rule(root=True), Rule(same=False)


def passes() -> None:
    """All precisions in few dimensions and in many, and what a `Rule` changes."""
    for d in (3, 20):
        for precision in (SINGLE, MIXED, DOUBLE):
            check_pass(case(70, 150, d, "cpu"), 0.01, precision)
        check_pass(case(70, 150, d, "cpu", ROOT), 0.01, MIXED)
        for rule in (PLAIN, DIFFERENT):
            check_pass(case(70, 150, d, "cpu", rule, labels=3), 0.01, MIXED)


def tiles() -> None:
    """Tiles left out: level and steep potentials, where those that matter are far from the rows."""
    for d, slope in ((1, 0.0), (3, 2.0)):
        flat = case(256, 1024, d, "cpu")
        duals = steep(flat, 5e-4, slope)
        check_pass(flat, 5e-4, MIXED, duals)
        assert share_that_reads_all(flat, 5e-4, duals) < 0.2


def left_out() -> None:
    """As much as may be left out is: one heavy column near the rows, all others just beyond the cut. The bound knows it."""
    m, reg, tol = 2048, 1e-3, 1e-5
    x, y, v = torch.zeros(32, 2).double(), torch.zeros(m, 2).double(), torch.zeros(m).double()
    v[1:32] = -1.0
    log_a, log_b = torch.full((32,), -math.log(32)).double(), torch.full((m,), -math.log(m)).double()
    for wanted in (tol, 1e-3):
        bits = OnGpu(x, y, log_a, log_b, 1.0, reg).deciding(wanted, reg).stream.bits()
        y[32:, 0] = 1.001 * math.sqrt(bits * math.log(2) * reg)
        executor = OnGpu(x, y, log_a, log_b, 1.0, reg).deciding(wanted, reg)
        found = executor.log_ratio(0 * log_a, v, reg, rows=True)
        expected = torch.logsumexp((v - torch.cdist(x, y).square()) / reg - 1, 1) - log_a
        assert float((found - expected).abs().max()) <= executor.rounding(reg) < wanted / 8


def wide() -> None:
    """Plain distances, a wide tile under a steep potential: its nearest point is far above what its middle says."""
    x, wide = 1e-3 * torch.linspace(0, 1, 32).double(), torch.linspace(-1, 0, 32).double()
    y, v = torch.cat([wide, 1e-3 + x]), torch.cat([0.9 * (wide + 0.5), torch.full((32,), 0.3).double()])
    weights = [torch.full((n,), -math.log(n)).double() for n in (32, 64)]
    plain = Case(x[:, None], y[:, None], *weights, ROOT)
    executor = plain.on(1e-3, MIXED)
    found, expected = (one.log_ratio(0 * weights[0], v, 1e-3, True) for one in (executor, plain))
    assert float((found - expected).abs().max()) <= executor.rounding(1e-3)


def as_many_points_as_dimensions() -> None:
    for n in (200, 3):
        check_pass(case(n, 200, 256, "cpu"), 0.1, MIXED)


def products() -> None:
    for d in (3, 20):
        for precision in (MIXED, DOUBLE):
            check_products(case(70, 150, d, "cpu"), 0.01, precision)
    check_products(case(70, 150, 20, "cpu", ROOT), 0.01, MIXED)
    check_products(case(70, 150, 3, "cpu", DIFFERENT, labels=3), 0.01, MIXED)


def solve() -> None:
    """A solution by the public call: its error, as float64 finds it, is below the one reported, and both below tol."""
    x, y, a, b = problem(0, 200, 180, 2)
    for dtype, tol, reg in ((torch.float32, 1e-3, 0.1), (torch.float64, 1e-7, 0.2)):
        given = [torch.tensor(t, dtype=dtype) for t in (x, y, a, b)]
        result = of.solve_sample(*given, reg=reg, tol=tol, executor="stream")
        points, (u, v) = [t.double() for t in given], result.potentials
        P = np.exp((u[:, None] + v - squared_cost(*points[:2])) / reg - 1)
        true = marginal_error(P, points[2], points[3] * points[2].sum() / points[3].sum())
        assert result.converged
        assert true <= result.marginal_error < tol
        assert "with a finish in" in result.method


if __name__ == "__main__":
    points.INTERPRETED = True  # so that public functions take the kernels too
    for name in sys.argv[1:]:
        globals()[name]()
