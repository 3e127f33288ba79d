"""Inputs that mean more than their numbers (a mask, units, torch.func): read as meant, or refused in one line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import ot
import pytest
import torch
from scipy.sparse import csr_array

import otformer as of
from oracles import uniform

n = 5
C, POINTS, WEIGHTS = uniform(0, n, n), uniform(1, n, 2), np.full(n, 1 / n)
FORBIDDEN = np.eye(n, dtype=bool)
HIDDEN = C.numpy().copy()
HIDDEN[FORBIDDEN] = np.nan  # what a mask hides is not read
MASKED = np.ma.masked_array(HIDDEN, mask=FORBIDDEN)
INF = np.where(FORBIDDEN, np.inf, C.numpy())
ENTROPIC = ot.sinkhorn(WEIGHTS, WEIGHTS, np.where(FORBIDDEN, 1e3, C.numpy()), 0.1, method="sinkhorn_log", stopThr=1e-12)
LEAST = min(sum(C[i, s[i]].item() for i in range(n)) / n for s in permutations(range(n)) if all(s[i] != i for i in range(n)))


@pytest.mark.parametrize(
    "plan",
    [
        lambda M: of.solve(M, reg=0.1, tol=1e-10).plan,
        lambda M: of.solve(M.astype(np.float32), reg=0.1).plan,
        lambda M: of.solve_batch([M], reg=0.1, tol=1e-10)[0].plan,
        lambda M: of.solve_batch(np.ma.stack([M, M]), reg=0.1, tol=1e-10)[1].plan,
        lambda M: of.solve_sample(POINTS, POINTS, reg=0.1, tol=1e-10, metric=lambda x, y: M).plan,
        lambda M: of.sinkhorn(WEIGHTS, WEIGHTS, M, 0.1),
    ],
)
def test_masked_pairs_are_forbidden(plan):
    found = plan(MASKED)
    assert not found[FORBIDDEN].any()
    np.testing.assert_allclose(found, ENTROPIC, atol=1e-6)


@pytest.mark.parametrize(
    "value",
    [
        lambda M: of.solve(M, reg=0).value,
        lambda M: of.solve_batch([M], reg=0)[0].value,
        lambda M: of.emd2([], [], M),
        lambda M: float((of.emd([], [], M) * C.numpy()).sum()),
    ],
)
def test_masked_pairs_are_forbidden_exactly(value):
    assert value(MASKED) == pytest.approx(LEAST, abs=1e-12)


def test_masked_pairs_of_variants_are_infinite_costs():
    for run in (of.solve_unbalanced, of.solve_partial):
        np.testing.assert_array_equal(run(MASKED, reg=0.1).plan, run(INF, reg=0.1).plan)
        assert not run(MASKED, reg=0.1).plan[FORBIDDEN].any()


def test_forbidden_pairs_have_no_part_in_the_loss_of_sinkhorn2():
    expected = float((ENTROPIC * C.numpy()).sum())
    for M in (MASKED, INF):
        assert of.sinkhorn2(WEIGHTS, WEIGHTS, M, 0.1) == pytest.approx(expected, abs=1e-9)
    assert float(of.sinkhorn2(WEIGHTS, WEIGHTS, torch.tensor(INF), 0.1)) == pytest.approx(expected, abs=1e-9)


def test_a_masked_array_and_a_mask_forbid_both():
    allowed = np.ones((n, n), bool)
    allowed[0, 1] = False
    P = of.solve(MASKED, reg=0.1, mask=allowed).plan
    assert P[0, 1] == 0
    assert not P[FORBIDDEN].any()


def test_a_masked_array_without_masked_entries_is_an_array():
    plain = np.ma.masked_array(WEIGHTS, mask=np.zeros(n, bool))
    np.testing.assert_array_equal(of.solve(C.numpy(), plain, reg=0.1).plan, of.solve(C.numpy(), WEIGHTS, reg=0.1).plan)


def vector(values: Any) -> Any:
    return np.ma.masked_array(np.asarray(values), mask=[True] + [False] * (len(values) - 1))


CLOUD = np.ma.masked_array(POINTS.numpy(), mask=np.eye(n, 2, dtype=bool))
MEANS_MORE: dict[str, Callable[[], Any]] = {
    "weights": lambda: of.solve(C.numpy(), a=vector(WEIGHTS)),
    "weights of tensors": lambda: of.solve(C, b=vector(WEIGHTS)),
    "points": lambda: of.solve_sample(CLOUD, POINTS.numpy()),
    "points, exact": lambda: of.solve_sample(POINTS.numpy(), CLOUD, reg=0),
    "points, streamed": lambda: of.solve_streamed(CLOUD, POINTS.numpy()),
    "a mask": lambda: of.solve(C.numpy(), mask=np.ma.masked_array(~FORBIDDEN, mask=FORBIDDEN)),
    "potentials": lambda: of.solve(C.numpy(), potentials=(vector(WEIGHTS), WEIGHTS)),
    "rows of a list": lambda: of.solve([vector(row) for row in C.numpy()]),
    "a batch of points": lambda: of.solve_batch([(CLOUD, POINTS.numpy())]),
    "weights of a batch": lambda: of.solve_batch([(C.numpy(), vector(WEIGHTS))]),
    "labels": lambda: of.solve_sample(POINTS, POINTS, labels=(vector(range(n)), range(n))),
    "ρ": lambda: of.solve_unbalanced(C.numpy(), reg_m=vector([1.0, 2.0])),
    "histograms": lambda: of.sinkhorn(WEIGHTS, np.ma.stack([vector(WEIGHTS)] * 2, 1), C.numpy(), 0.1),
    "a warm start": lambda: of.sinkhorn([], [], C.numpy(), 0.1, warmstart=(WEIGHTS, vector(WEIGHTS))),
    "weights of emd": lambda: of.emd(vector(WEIGHTS), WEIGHTS, C.numpy()),
    "scipy's": lambda: of.linear_sum_assignment(MASKED),
    "an assignment": lambda: of.assignment(CLOUD, POINTS.numpy()),
    "a line": lambda: of.wasserstein_1d(vector(WEIGHTS), WEIGHTS),
    "a sort": lambda: of.sort(vector(WEIGHTS)),
    "a loss": lambda: of.SamplesLoss()(CLOUD, POINTS.numpy()),
    "a divergence": lambda: of.divergence(POINTS.numpy(), CLOUD),
    "features": lambda: of.squared_euclidean(CLOUD, POINTS.numpy()),
    "a matrix of features": lambda: of.cost_matrix(MASKED),
    "a network": lambda: of.AligningTransformer(2, 0.5, 5)(CLOUD, POINTS.numpy()),
    "a vector": lambda: of.solve(C.numpy()).apply(vector(WEIGHTS)),
    "values": lambda: of.solve(C.numpy(), reg=0).map(vector(WEIGHTS)),
}


@pytest.mark.parametrize("name", MEANS_MORE)
def test_other_masked_arrays_are_refused(name):
    with pytest.raises(ValueError, match="must ") as raised:
        MEANS_MORE[name]()
    assert "\n" not in str(raised.value)


class Metres(np.ndarray):
    """An array with units, as astropy's and pint's have them."""

    unit = property(lambda self: "m")


ODD: dict[str, Callable[[], Any]] = {
    "sparse": lambda: csr_array(C.numpy()),
    "complex": lambda: C.numpy() + 0j,
    "booleans": lambda: FORBIDDEN,
    "objects": lambda: C.numpy().astype(object),
    "fields": lambda: np.zeros((n, n), [("cost", float), ("time", float)]),
    "dates": lambda: np.zeros((n, n), "datetime64[s]"),
    "units": lambda: C.numpy().view(Metres),
    "a sparse tensor": lambda: C.to_sparse(),
    "a nested tensor": lambda: torch.nested.nested_tensor([C[0], C[1, :3]]),
    "a masked tensor": lambda: torch.masked.masked_tensor(C, torch.tensor(~FORBIDDEN)),
    "a quantised tensor": lambda: torch.quantize_per_tensor(C.float(), 0.1, 0, torch.qint8),
    "a tensor without numbers": lambda: C.to("meta"),
    "complex tensors": lambda: C + 0j,
    "boolean tensors": lambda: C > 0,
}
DOORS: dict[str, Callable[[Any], Any]] = {
    "solve": lambda t: of.solve(t),
    "exact": lambda t: of.solve(t, reg=0),
    "points": lambda t: of.solve_sample(t, POINTS),
    "unbalanced": lambda t: of.solve_unbalanced(t),
    "batch": lambda t: of.solve_batch([t]),
    "sinkhorn": lambda t: of.sinkhorn([], [], t, 0.1),
    "loss": lambda t: of.SamplesLoss()(t, POINTS),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", ODD)
def test_odd_arrays_are_refused_in_one_line(kind, door):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of kinds that are in the making
        given = ODD[kind]()
        if "sparse" in kind and door in ("solve", "exact"):  # pairs that are not there are forbidden
            assert of.solve(given, reg=0).converged
            return
        with pytest.raises(ValueError, match="must ") as raised:
            DOORS[door](given)
    assert "\n" not in str(raised.value)


def test_a_matrix_of_numpy_is_an_array():
    np.testing.assert_array_equal(of.solve(np.matrix(C.numpy())).plan, of.solve(C.numpy()).plan)


FUNC: dict[str, Callable[[Any], Any]] = {
    "solve": lambda M: of.solve(M).value,
    "solve, λ": lambda M: of.solve(C, reg=M[0, 0]).value,
    "solve, weights": lambda M: of.solve(C, a=M[0]).value,
    "solve, a mask": lambda M: of.solve(C, mask=M > 0.01).value,
    "exact": lambda M: of.solve(M, reg=0).value,
    "unbalanced": lambda M: of.solve_unbalanced(M).value,
    "unbalanced, ρ": lambda M: of.solve_unbalanced(C, reg_m=M[0, 0]).value,
    "partial": lambda M: of.solve_partial(M).value,
    "sample": lambda M: of.solve_sample(M, M).value,
    "labels": lambda M: of.solve_sample(POINTS, POINTS, labels=((M[0] > 0).long(), [1] * n)).value,
    "streamed": lambda M: of.solve_streamed(M, M).value,
    "batch": lambda M: of.solve_batch([M])[0].value,
    "sinkhorn2": lambda M: of.sinkhorn2([], [], M, 0.1),
    "emd2": lambda M: of.emd2([], [], M),
    "assignment": lambda M: of.linear_sum_assignment(M)[0].double().sum(),
    "loss": lambda M: of.SamplesLoss()(M, M + 1),
    "divergence": lambda M: of.divergence(M, M + 1),
    "line": lambda M: of.wasserstein_1d(M[0], M[1]),
    "sort": lambda M: of.sort(M[0])[0],
    "layer": lambda M: of.nn.Transport()(cost=M).sum(),
    "layer, weights": lambda M: of.nn.Transport()(cost=C, a=M[0]).sum(),
}


@pytest.mark.parametrize("transform", ["grad", "vmap", "jacrev", "jacfwd"])
@pytest.mark.parametrize("name", FUNC)
def test_torch_func_is_refused_in_one_line(name, transform):
    given = torch.stack([C, C]) if transform == "vmap" else C
    with pytest.raises(ValueError, match=r"torch\.func|torch\.autograd\.grad") as raised:
        getattr(torch.func, transform)(FUNC[name])(given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "labels",
    [["a", "a\0"], [b"a", b"a\0"], np.array(["a", "a\0"], object), [1, "1"], ["a", b"a"]],
    ids=["NUL", "bytes with NUL", "objects with NUL", "a number beside its digits", "bytes beside text"],
)
def test_labels_that_numpy_would_merge_are_refused(labels):
    with pytest.raises(ValueError, match=r"labels\[0\] must ") as raised:
        of.solve_sample([[0.0], [1.0]], [[0.0], [1.0]], labels=(labels, labels))
    assert "\n" not in str(raised.value)


def test_labels_with_nul_inside_are_kept_apart():
    P = of.solve_sample([[0.0], [1.0]], [[0.0], [1.0]], reg=0.1, labels=(["a\0b", "a"], ["a", "a\0b"])).plan
    np.testing.assert_allclose(P, [[0.0, 0.5], [0.5, 0.0]], atol=1e-9)
