"""`GpuPairs.least` against the matrix: on a CUDA device, and small in Triton's interpreter, which runs this file."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from helpers.gpu_streams import Case, case
from needs import missing
from otformer.transport.costs.clouds import PLAIN, Rule
from otformer.transport.costs.gpu import least, least_kernels
from otformer.transport.costs.gpu.least import GpuPairs

ROOT, DIFFERENT = Rule(root=True), Rule(same=False)
CHECKS = ("dimensions", "rules", "ties", "absent", "steep_distances"), ("far_moves", "left_out")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason=missing("linux"))
@pytest.mark.parametrize("checks", CHECKS, ids=["values", "tiles"])
def test_in_the_interpreter(checks: tuple[str, ...]) -> None:
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    call = [sys.executable, __file__, *checks]
    done = subprocess.run(call, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def rough(m: int, size: float = 0.02, seed: int = 3) -> Tensor:
    return size * torch.rand(m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def moving(points: Tensor, slope: float) -> Tensor:
    """The potential of a map that moves all points the same way, by half of ``slope`` in every coordinate, and roughness."""
    return slope * points.sum(1) + rough(len(points), 0.002).to(points)


def check(problem: Case, k: int, v: Tensor | None = None, both: bool = False) -> None:
    """Values are the least of the matrix, in order, and those of the places; no place comes twice."""
    pairs = GpuPairs(problem.x, problem.y, problem.rule)
    assert pairs.shape == problem.C.shape
    costs = pairs.costs(*torch.ones_like(problem.C).nonzero().unbind(1)).view(problem.C.shape)
    torch.testing.assert_close(costs, problem.C, rtol=0, atol=2.0**-49 * float(problem.spread))
    v = rough(len(problem.y)).to(problem.y) if v is None else v
    for rows in (True, False) if both else (True,):
        other = v if rows else rough(len(problem.x), seed=4).to(v)
        reduced = (problem.C if rows else problem.C.mT) - other
        values, places = pairs.least(other, k, rows)
        assert values.shape == places.shape == (len(reduced), k)
        assert (values.dtype, places.dtype) == (torch.float64, torch.int64)
        short = max(0, k - reduced.shape[1])
        expected = torch.nn.functional.pad(reduced.sort(1).values[:, :k], (0, short), value=math.inf)
        atol = 2.0**-49 * float(other[other.isfinite()].abs().max() + problem.spread)
        torch.testing.assert_close(values, expected, rtol=0, atol=atol)
        found = places >= 0
        assert torch.equal(found, values.isfinite())
        assert bool((places[~found] == -1).all())
        at, whose = reduced.gather(1, places.clamp(min=0)), places.sort(1).values
        torch.testing.assert_close(values[found], at[found], rtol=0, atol=atol)
        assert not bool(((whose[:, 1:] == whose[:, :-1]) & (whose[:, 1:] >= 0)).any())
        i, j = found.nonzero()[:, 0], places[found]
        again = pairs.costs(*((i, j) if rows else (j, i))) - other[j]
        assert torch.equal(values[found], again)


def check_ties(n: int, m: int, device: str) -> None:
    """Points of a grid, and points that all coincide: equal entries by the dozen."""
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randint(-1, 2, (size, 2), generator=g).double().to(device) for size in (n, m))
    logs = [t.new_zeros(len(t)) for t in (x, y)]
    for rule in (PLAIN, ROOT):
        check(Case(x, y, *logs, rule), 5, torch.zeros(m, dtype=torch.float64, device=device), both=n <= m)
    once = Case(x * 0, y * 0 + 1, *logs)
    check(once, 7, torch.zeros(m, dtype=torch.float64, device=device))


def check_absent(n: int, m: int, d: int, device: str) -> None:
    """Fewer columns than are asked for; columns whose potential is −∞; rows that may match nobody."""
    check(case(n, 5, d, device), 8)
    check(case(1, 1, d, device), 2)
    v = rough(m).to(device)
    v[torch.arange(m, device=device) % 40 > 0] = -math.inf
    check(case(n, m, d, device), 12, v)
    own, other = torch.arange(n, device=device) % 4, torch.arange(m, device=device) % 3
    check(replace(case(n, m, d, device), rule=Rule(labels=(own, other))), 3)


def check_steep_distances(d: int, device: str) -> None:
    """Plain distances, where the tile that matters is long and its potential rises towards the rows."""
    x, y = torch.linspace(0, 1e-3, 40), torch.cat([torch.linspace(-1, 0, 32), torch.linspace(1e-3, 2e-3, 256)])
    v = torch.where(y <= 0, 0.9 * (y + 0.5), torch.tensor(0.3)).double().to(device)
    points = [torch.nn.functional.pad(t[:, None].double(), (0, d - 1)).to(device) for t in (x, y)]
    check(Case(*points, *(t.new_zeros(len(t)) for t in points), ROOT), 4, v)


# Small, in the interpreter.


def dimensions() -> None:
    for d, k in ((1, 4), (3, 1), (8, 2), (20, 32)):
        check(case(70, 150, d, "cpu"), k, both=d in (3, 20))


def rules() -> None:
    for d in (2, 9):
        check(case(40, 150, d, "cpu", ROOT), 3)
        for rule in (PLAIN, DIFFERENT):
            check(case(40, 150, d, "cpu", rule, labels=3), 3)


def ties() -> None:
    check_ties(30, 200, "cpu")
    x = case(100, 100, 9, "cpu").x
    check(Case(x, x.clone(), x[:, 0], x[:, 0], ROOT), 2, torch.zeros(100).double())


def absent() -> None:
    for d in (2, 9):
        check_absent(30, 260, d, "cpu")


def steep_distances() -> None:
    check_steep_distances(2, "cpu")


def far_moves() -> None:
    for d in (1, 3):
        given = case(40, 300, d, "cpu")
        for least.ROUGH_UP_TO in (512, 0):
            check(given, 3, moving(given.y, 3.0))


@contextmanager
def counted() -> Iterator[list[int]]:
    """How many tiles are read; the interpreter calls the functions that the module holds."""
    read, entries = [0], least_kernels.entries

    def counting(*arguments):  # type: ignore[no-untyped-def]
        read[0] += 1
        return entries(*arguments)

    least_kernels.entries = counting
    yield read
    least_kernels.entries = entries


def left_out() -> None:
    """Of 1,024 columns few tiles are read, wherever mass goes."""
    for slope, least.ROUGH_UP_TO in ((0.0, 512), (2.0, 0), (2.0, 512)):
        given = case(64, 1024, 1, "cpu")
        given = replace(given, y=given.y + slope / 2)
        with counted() as read:
            GpuPairs(given.x, given.y).least(moving(given.y, slope), 3, rows=True)
        assert 0 < read[0] < 0.4 * 8 * 32  # 8 tiles of rows with what fills them up, 32 of columns; some are read twice


# Large, on a GPU.


@pytest.mark.gpu
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 9, 16, 64, 100])
def test_dimensions(d: int) -> None:
    for n, m, k in ((1, 3, 2), (5003, 517, 1), (5000, 7001, 12), (6000, 5001, 32)):
        check(case(n, m, d, "cuda"), k, both=k == 12)


@pytest.mark.gpu
@pytest.mark.parametrize("d", [3, 16])
def test_many_points(d: int) -> None:
    for k in (1, 2, 4, 7):
        check(case(20_000, 17_000, d, "cuda"), k)


@pytest.mark.gpu
def test_a_large_cloud() -> None:
    """300,000 points, of which 400 are looked at: half of them by rows, half by columns."""
    given = case(300_000, 300_000, 3, "cuda")
    pairs, some = GpuPairs(given.x, given.y), slice(None, None, 1500)
    for rows, (own, other) in ((True, (given.x, given.y)), (False, (given.y, given.x))):
        v = moving(other, 0.5)
        values, places = pairs.least(v, 12, rows)
        squares = torch.cdist(own[some], other, compute_mode="donot_use_mm_for_euclid_dist").square()
        expected = (squares - v).topk(12, largest=False)
        torch.testing.assert_close(values[some], expected.values, rtol=0, atol=1e-14)
        assert float((places[some] == expected.indices).double().mean()) > 0.99


@pytest.mark.gpu
@pytest.mark.parametrize("d", [2, 3, 16])
@pytest.mark.parametrize("labels", [0, 2, 40])
def test_rules(d: int, labels: int) -> None:
    for rule in (PLAIN, ROOT) if not labels else (PLAIN, DIFFERENT, ROOT):
        check(case(5001, 6777, d, "cuda", rule, labels=labels), 8)


@pytest.mark.gpu
@pytest.mark.parametrize("slope", [0.3, 2.0, 10.0])
def test_mass_that_goes_far(slope: float) -> None:
    for d in (1, 2, 3, 8, 16):
        given = case(6000, 7000, d, "cuda")
        check(given, 12, moving(given.y, slope))
        shifted = replace(given, y=given.y + slope / 2)
        check(shifted, 12, moving(shifted.y, slope))


@pytest.mark.gpu
def test_a_gaussian_to_a_ring() -> None:
    """v is the potential of the map that pushes points outwards, by 3."""
    g = torch.Generator().manual_seed(1)
    x, z = (torch.randn(size, 2, generator=g, dtype=torch.float64).cuda() for size in (9000, 8000))
    y = z + 3 * torch.nn.functional.normalize(z)
    v = 3 * (2 * y.norm(dim=1) - 3) + rough(8000).cuda()
    check(Case(x, y, x[:, 0], y[:, 0]), 12, v)


@pytest.mark.gpu
def test_rough_potentials_clusters_and_copies() -> None:
    for d in (3, 16):
        given = case(5000, 6000, d, "cuda")
        check(given, 12, rough(6000, 5.0).cuda())
        x, y = given.x.clone(), given.y.clone()
        x[2000:] += 4.0
        y[3000:4000], y[4000:] = y[0], 1e-3 * y[4000:] - 2.0
        check(replace(given, x=x, y=y), 12)


@pytest.mark.gpu
def test_ties_absent_columns_and_steep_distances() -> None:
    check_ties(5000, 6000, "cuda")
    for d in (2, 16):
        check_absent(3000, 5000, d, "cuda")
    check_steep_distances(2, "cuda")


def test_arguments_are_checked() -> None:
    given = case(3, 4, 2, "cpu")
    pairs = GpuPairs(given.x, given.y)
    with pytest.raises(ValueError, match=r"potential must have shape \(4,\), got \(3,\)"):
        pairs.least(torch.zeros(3), 1, rows=True)
    with pytest.raises(ValueError, match="k must be from 1 to 32, got 33"):
        pairs.least(torch.zeros(4), 33, rows=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
