"""Solutions for plain distances, and for pairs that labels allow, streamed and dense: against POT, differences, scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import otformer as of
from helpers.streams import clouds, masses
from oracles import marginal_error, pot_plan, slope, squared_cost
from transport.test_stream_rules import distances, labels

EQUAL, DIFFERENT = {"allow": "equal"}, {"allow": "different"}
SAMPLES = [
    dict(metric="euclidean"),
    dict(metric="sqeuclidean", labels=4, **EQUAL),
    dict(metric="euclidean", labels=4, **EQUAL),
    dict(metric="sqeuclidean", labels=4, **DIFFERENT),
    dict(metric="euclidean", labels=4, **DIFFERENT),
    dict(metric="cosine", labels=2, **DIFFERENT),
]


def sample(given: dict[str, Any], zeros: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
    """Points, weights that fit, and options with labels in place of their number."""
    x, y = clouds(60, 48, 2)
    a, b = masses(60, 1, zeros), masses(48, 2, zeros)
    options = dict(given)
    if k := options.pop("labels", 0):
        own, other = torch.arange(60) % k, torch.arange(48) % k
        mine, yours = (torch.zeros(k, dtype=torch.float64).index_add(0, at, w) for at, w in ((own, a), (other, b)))
        if k == 2 and options["allow"] == "different":
            mine = mine.flip(0)
        options["labels"] = own, other
        b = b * (mine / yours)[other] if k == 2 or options["allow"] == "equal" else b
    return x, y, a, b, options


def cost(x: Tensor, y: Tensor, options: dict[str, Any]) -> Tensor:
    """The matrix by its definition, 10⁴ where a pair is forbidden."""
    unit = [t / t.norm(dim=1, keepdim=True) for t in (x, y)]
    C = {"euclidean": distances, "sqeuclidean": squared_cost, "cosine": lambda *_: 1 - unit[0] @ unit[1].mT}[
        options["metric"]
    ](x, y)
    if "labels" in options:
        own, other = options["labels"]
        equal = own[:, None] == other
        C = torch.where(equal if options["allow"] == "equal" else ~equal, C, 1e4)
    return C


@pytest.mark.parametrize("given", SAMPLES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_streamed_solution_equals_that_of_pot(given: dict[str, Any], dtype: torch.dtype) -> None:
    x, y, a, b, options = sample(given, zeros=7)
    x, y = x.to(dtype), y.to(dtype)
    C = cost(x.double(), y.double(), options)
    expected, loose = pot_plan(C, a, b, 0.05), 1e-8 if dtype == torch.float64 else 1e-6
    for executor in ("stream", "dense"):
        tol = 1e-10 if dtype == torch.float64 or executor == "stream" else 1e-6
        found = of.solve_sample(x, y, a, b, reg=0.05, tol=tol, executor=executor, **options)
        P = found.plan.dense() if executor == "stream" else found.plan
        assert found.converged
        torch.testing.assert_close(P.double(), expected, rtol=0, atol=loose)
        assert bool((P[C == 1e4] == 0).all())
        linear = float((expected * C).sum())
        entropy = float(torch.special.xlogy(expected, expected).sum())
        assert float(found.value_linear) == pytest.approx(linear, rel=1e-6)
        assert float(found.value) == pytest.approx(linear + 0.05 * entropy, rel=1e-5)
        mapped = expected @ y.double() / expected.sum(1, keepdim=True).clamp_min(1e-300)
        torch.testing.assert_close(found.map(y).double(), mapped, rtol=0, atol=1e-4)
    streamed = of.solve_sample(x, y, a, b, reg=0.05, tol=1e-10, executor="stream", **options)
    assert streamed.marginal_error == pytest.approx(marginal_error(streamed.plan, a, b), abs=1e-13)
    torch.testing.assert_close(streamed.plan.rows(5, 9), streamed.plan.dense()[5:9])
    torch.testing.assert_close(streamed.plan.T.rows(5, 9), streamed.plan.dense().mT[5:9])
    assert streamed.plan.argmax(1).tolist() == streamed.plan.dense().argmax(1).tolist()


@pytest.mark.parametrize("given", SAMPLES)
def test_gradients_are_those_of_the_dense_path(given: dict[str, Any]) -> None:
    """Of value, value_linear and products, in points, weights and λ; a pair of points coincides."""
    x, y, a, b, options = sample(given, zeros=7)
    y[1] = x[1]
    reg = torch.tensor(0.1, dtype=torch.float64)
    inputs = [t.clone().requires_grad_() for t in (x, y, a, b, reg)]
    grads = []
    for executor in ("stream", "dense"):
        found = of.solve_sample(*inputs, tol=1e-12, executor=executor, **options)
        loss = (
            found.value
            + 2 * found.value_linear
            + (found.map(inputs[1]) ** 2 / 1e3).sum()
            + found.apply(inputs[1][:, 0]).sum()
        )
        grads.append(torch.autograd.grad(loss, inputs))
    for ours, theirs, at in zip(*grads, [a > 0, b > 0, a > 0, b > 0, ...], strict=True):
        torch.testing.assert_close(ours[at], theirs[at], rtol=1e-7, atol=1e-8 * float(theirs[at].abs().max()))


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("name", ["x", "y", "a", "b", "reg"])
@pytest.mark.parametrize("given", [SAMPLES[0], SAMPLES[2], SAMPLES[4], SAMPLES[5]])
@pytest.mark.parametrize("executor", ["stream", "dense"])
def test_gradients_are_those_of_differences(given: dict[str, Any], name: str, executor: str) -> None:
    """Weights in any direction: b is scaled to the mass of a, with equal labels in each of them."""
    x, y, a, b, options = sample(given)
    inputs = {"x": x, "y": y, "a": a, "b": b, "reg": torch.tensor(0.1, dtype=torch.float64)}

    def loss(moved: Tensor) -> Tensor:
        parts = inputs | {name: moved}
        scaled = parts["a"], parts["b"]
        found = of.solve_sample(parts["x"], parts["y"], *scaled, parts["reg"], tol=1e-12, executor=executor, **options)
        return found.value + found.value_linear + found.apply(y[:, 0]).square().sum()

    moving = inputs[name].clone().requires_grad_()
    loss(moving).backward()
    direction = torch.randn(moving.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    if name in "ab":  # little enough for the masses to agree: far below 10⁻⁵
        direction = direction * inputs[name]
    found = float((moving.grad * direction).sum())  # type: ignore[operator]
    assert found == pytest.approx(slope(loss, inputs[name], direction, 1e-6), rel=1e-4, abs=1e-6)


def test_a_warm_start_is_used_and_its_free_constants_do_no_harm() -> None:
    """Each label has a constant of its own that u and v may exchange."""
    x, y, a, b, options = sample(SAMPLES[2])
    cold = of.solve_sample(x, y, a, b, reg=0.02, tol=1e-8, executor="stream", **options)
    (u, v), (own, other) = cold.potentials, options["labels"]
    level = torch.tensor([0.0, 0.5, -0.3, 0.9], dtype=torch.float64)
    for start in ((u, v), (u + level[own], v - level[other])):
        warm = of.solve_sample(x, y, a, b, reg=0.02, tol=1e-8, executor="stream", potentials=start, **options)
        assert warm.converged
        assert warm.depth < cold.depth / 4
        torch.testing.assert_close(warm.plan.dense(), cold.plan.dense(), rtol=0, atol=1e-8)


def test_labels_of_any_kind_and_masks_besides() -> None:
    x, y, a, b, options = sample(SAMPLES[1])
    own, other = options["labels"]
    expected = of.solve_sample(x, y, a, b, reg=0.05, **options).plan
    words = np.array(["pear", "fig", "plum", "kiwi"])
    for given in (
        (own.numpy(), other.numpy().astype(np.int8)),
        (own.tolist(), other.tolist()),
        (own - 2, other - 2),
        (words[own], words[other].tolist()),
        (words[own].astype(object), words[other]),
    ):
        for executor in ("dense", "stream"):
            found = of.solve_sample(x, y, a, b, reg=0.05, labels=given, executor=executor)
            P = found.plan if executor == "dense" else found.plan.dense()
            torch.testing.assert_close(P, expected, rtol=0, atol=1e-6)
    mask = torch.rand(60, 48, generator=torch.Generator().manual_seed(0)) > 0.1
    found = of.solve_sample(x, y, a, b, reg=0.05, mask=mask, labels=(own, other))
    both = of.solve_sample(x, y, a, b, reg=0.05, mask=mask & (own[:, None] == other))
    torch.testing.assert_close(found.plan, both.plan, rtol=0, atol=1e-6)
    nobody = of.solve_streamed(x, y, a, b, reg=0.05, labels=([1] * 60, [1] * 48))
    torch.testing.assert_close(nobody.plan.dense(), of.solve_sample(x, y, a, b, reg=0.05).plan, rtol=0, atol=1e-6)
    assert of.solve_streamed(x[:0], y[:0], labels=([], [])).converged
    features = of.squared_euclidean(x, y)
    for executor in ("dense", "stream"):
        by = of.solve_sample(
            None, None, a, b, reg=0.05, metric=features, executor=executor, **{k: options[k] for k in ("labels", "allow")}
        )
        torch.testing.assert_close(by.plan if executor == "dense" else by.plan.dense(), expected, rtol=0, atol=1e-6)
    own_metric = of.solve_sample(x, y, a, b, reg=0.05, metric=squared_cost, labels=(own, other))
    torch.testing.assert_close(own_metric.plan, expected, rtol=0, atol=1e-6)


def test_labels_of_an_unbalanced_problem_need_no_equal_masses() -> None:
    x, y, *_ = sample(SAMPLES[1])
    own, other = labels(60, 3), labels(48, 3, 1)
    found = of.solve_sample(x, y, reg=0.1, unbalanced=1.0, labels=(own, other))
    mask = of.solve_sample(x, y, reg=0.1, unbalanced=1.0, mask=own[:, None] == other)
    torch.testing.assert_close(found.plan, mask.plan, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="labels forbid every pair of the points of a labelled 5, which have mass"):
        of.solve_sample(x, y, unbalanced=1.0, labels=(torch.where(own == 1, 5, own), other))


def test_halls_condition_is_the_one_that_linear_programming_finds() -> None:
    """Over random masses of three labels, "different": feasible by scipy where it is by us, not on the edge between."""
    from scipy.optimize import linprog

    rng, seen = np.random.default_rng(0), set()
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    sums = [[float(pair[side] == k) for pair in pairs] for side in (0, 1) for k in range(3)]
    options = {"reg": 1.0, "tol": 1e-3, "labels": ([0, 1, 2], [0, 1, 2]), "allow": "different"}
    for _ in range(60):
        a, b = rng.dirichlet([0.7] * 3), rng.dirichlet([0.7] * 3)
        feasible = linprog(np.zeros(6), A_eq=sums, b_eq=[*a, *b]).status == 0
        seen.add(feasible)
        if feasible:
            assert np.isfinite(of.solve_streamed(np.eye(3), np.eye(3), a, b, **options).value)
        else:
            with pytest.raises(ValueError, match="labels must leave room elsewhere: "):
                of.solve_streamed(np.eye(3), np.eye(3), a, b, **options)
    assert seen == {True, False}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:not converged")
def test_converged_is_never_a_lie() -> None:
    """120 problems with labels, plain or squared distances and any float: sums of the matrix in float64, computed here."""
    rng, converged = np.random.default_rng(0), 0
    for _ in range(120):
        n, m, d, k = rng.integers(1, (200, 200, 4, 6))
        dtype = rng.choice([np.float16, np.float32, np.float64])
        x, y = ((rng.random((size, d)) + rng.choice([0, 1, 30]) * rng.normal(size=d)).astype(dtype) for size in (n, m))
        own, other = (np.concatenate([np.arange(k), rng.integers(k, size=size)]) for size in (n, m))
        x, y = np.concatenate([x[:1].repeat(k, 0), x]), np.concatenate([y[:1].repeat(k, 0), y])
        metric, allow = rng.choice(["euclidean", "sqeuclidean"]), rng.choice(["equal", "different"])
        if k == 1:
            allow = "equal"
        a, b = rng.random(n + k) + 0.01, rng.random(m + k) + 0.01
        partner = 1 - own if k == 2 and allow == "different" else own
        if k == 2 or allow == "equal":
            b *= (np.bincount(partner, a, k) / np.bincount(other, b, k))[other]
        b *= a.sum() / b.sum()
        if np.any(np.bincount(own, a, k) + np.bincount(other, b, k) > 0.99 * a.sum()) and allow == "different" and k > 2:
            continue
        C = distances(x.astype(float), y.astype(float))
        C = C if metric == "euclidean" else C**2
        reg, tol = (np.ptp(C) or 1) * 10 ** rng.uniform(-3, 1), rng.choice([1e-3, 1e-6, 1e-9])
        options = {"metric": metric, "allow": allow, "labels": (own, other), "executor": "stream"}
        found = of.solve_sample(x, y, a, b, reg=reg, tol=tol, max_depth=400, **options)
        u, v = found.potentials
        allowed = (own[:, None] == other) == (allow == "equal")
        P = np.exp(np.where(allowed, (u[:, None] + v - C) / reg - 1, -np.inf))
        true = marginal_error(P, a, b)
        assert not found.converged or true < tol + 1e-10 * a.sum()
        assert found.marginal_error == pytest.approx(true, rel=1e-5, abs=1e-9 * a.sum())
        converged += found.converged
    assert converged > 60


NINE, SEVEN = [1] * 9, [1] * 7
BAD = [
    (dict(labels=NINE), "labels must be a pair of arrays, of a and of b, got 9 of them"),
    (dict(labels=np.ones(9)), "labels must be a pair of arrays, of a and of b, got ndarray"),
    (dict(labels=(NINE, NINE)), r"labels\[1\] must have shape \(7,\), got \(9,\)"),
    (dict(labels=([NINE], SEVEN)), r"labels\[0\] must have shape \(9,\), got \(1, 9\)"),
    (dict(labels=(np.ones(9), SEVEN)), r"labels\[0\] must be whole numbers or strings, got dtype float64"),
    (dict(labels=(NINE, [None] * 7)), r"labels\[1\] must be whole numbers or strings, got dtype object"),
    (dict(labels=([[1], [2, 3]], SEVEN)), r"labels\[0\] must be whole numbers or strings, got rows of different length"),
    (dict(labels=(["1"] * 9, SEVEN)), "labels must be of one kind, got dtypes <U1 and int64"),
    (dict(labels=(NINE, np.array(SEVEN, np.uint64))), "labels must be of one kind, got dtypes int64 and uint64"),
    (dict(labels=(NINE, SEVEN), allow="same"), "allow must be one of equal, different, got 'same'"),
    (dict(allow="different"), "allow must be given with labels, got 'different' without them"),
    (dict(labels=([1] * 8 + [2], SEVEN)), "labels forbid every pair of the points of a labelled 2, which have mass"),
    (
        dict(labels=(["p"] * 9, ["q"] + ["p"] * 6)),
        "labels forbid every pair of the points of b labelled 'q', which have mass",
    ),
    (dict(labels=(NINE, SEVEN), allow="different"), "labels forbid every pair of the points of a labelled 1"),
    (
        dict(labels=([1] * 8 + [2], [1] * 6 + [2])),
        "labels must have equal masses: 1 of a and 1 of b, which match each other alone, have 0.888889 and 0.857143",
    ),
    (
        dict(labels=([1] * 8 + [2], [1] * 6 + [2]), allow="different"),
        "labels must have equal masses: 1 of a and 2 of b, which match each other alone, have 0.888889 and 0.142857",
    ),
    (
        dict(labels=([1] * 8 + [3], [1] * 6 + [2]), allow="different"),
        "labels must leave room elsewhere: 1 must have in a and b together at most the mass 1, got 0.888889 and 0.857143",
    ),
    (dict(cost="euclidean", reg=-1.0), "reg must be a positive"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    x, y = clouds(9, 7, 2)
    with pytest.raises(ValueError, match=message) as raised:
        of.solve_streamed(x, y, **options)
    assert "\n" not in str(raised.value)
    options = {"metric" if name == "cost" else name: value for name, value in options.items()}
    with pytest.raises(ValueError, match=message):
        of.solve_sample(x, y, **options)


def test_points_too_far_apart_for_squares_are_refused() -> None:
    x, y = clouds(9, 7, 2)
    with pytest.raises(ValueError, match="must have finite squared distances"):
        of.solve_streamed(1e200 * x, y, cost="euclidean")
    with pytest.raises(ValueError, match="reg must be so large that cost/reg is finite"):
        of.solve_streamed(1e150 * x, y, cost="euclidean", reg=1e-200)
    with pytest.raises(ValueError, match="executor='stream' cannot be combined with"):
        of.solve_sample(x, y, executor="stream", mask=torch.ones(9, 7) > 0, labels=(NINE, SEVEN))
