"""Streams of plain distances, and of pairs that labels allow: against the dense executor, POT, brute force, differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import otformer as of
from helpers.streams import clouds, masses
from oracles import marginal_error, pot_plan, slope, squared_cost
from otformer.network.features import squared_euclidean
from otformer.transport.executors.clouds import Rule, centred
from otformer.transport.executors.dense import Dense
from otformer.transport.executors.stream import Stream
from otformer.transport.streaming.coarse_to_fine import coarse_to_fine

EQUAL, DIFFERENT = {"allow": "equal"}, {"allow": "different"}
RULES = [Rule(root=True), *(Rule(root, (), same) for root in (False, True) for same in (True, False))]  # labels: below


def distances(x: Any, y: Any) -> Any:
    """‖x_i − y_j‖ with gradient 0 where it is 0, an array or a tensor as the points are."""
    squares = squared_cost(x, y)
    if isinstance(squares, np.ndarray):
        return np.sqrt(squares)
    return torch.where(squares > 0, torch.where(squares > 0, squares, 1.0).sqrt(), 0.0)


def labels(n: int, k: int, seed: int = 0) -> Tensor:
    return torch.randint(k, (n,), generator=torch.Generator().manual_seed(seed))


def both(rule: Rule, n: int, m: int, d: int, dtype: torch.dtype = torch.float64, k: int = 3) -> tuple[Dense, Stream, Rule]:
    """One problem for both executors; the dense one in float64, with infinite costs, from the numbers of the stream."""
    x, y = (t.to(dtype) for t in clouds(n, m, d))
    rule = rule if rule.labels is None else rule._replace(labels=(labels(n, k), labels(m, k, 1)))
    C = distances(x.double(), y.double()) if rule.root else squared_cost(x.double(), y.double())
    if rule.labels is not None:
        same = rule.labels[0][:, None] == rule.labels[1]
        C = torch.where(same if rule.same else ~same, C, torch.inf)
    logs = torch.full((n,), -np.log(n), dtype=dtype), torch.full((m,), -np.log(m), dtype=dtype)
    return Dense(C, *(t.double() for t in logs)), Stream(squared_euclidean(x, y), *logs, 5000, rule), rule


def duals(dense: Dense, reg: float) -> tuple[Tensor, Tensor]:
    v = 0.1 * torch.rand(dense.C.shape[1], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return -reg * dense.log_ratio(torch.zeros_like(dense.log_a), v, reg, rows=True), v


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("n", "m", "d", "reg"), [(7, 300, 2, 0.1), (301, 517, 3, 0.01), (700, 600, 1, 0.001), (129, 128, 20, 0.05)]
)
def test_passes_and_products_equal_the_dense_ones(rule: Rule, n: int, m: int, d: int, reg: float) -> None:
    dense, stream, rule = both(rule, n, m, d)
    u, v = duals(dense, reg)
    for rows in (True, False):
        ours, theirs = stream.log_ratio(u, v, reg, rows), dense.log_ratio(u, v, reg, rows)
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    P, C = dense.plan(u, v, reg), torch.where(dense.C.isinf(), 0.0, dense.C)
    apart = distances(*clouds(n, m, d))
    near = torch.where(apart > 0, P / apart, 0.0)
    right, left = (torch.randn(k, 2, generator=torch.Generator().manual_seed(k), dtype=torch.float64) for k in (m, n))
    for ours, theirs in (
        (stream.apply(u, v, reg, right), P @ right),
        (stream.apply_transposed(u, v, reg, left), P.mT @ left),
        (stream.apply(u, v, reg, right, inverse=True), near @ right),
        (stream.apply_transposed(u, v, reg, left, inverse=True), near.mT @ left),
        (stream.cost_sums(u, v, reg), (P * C).sum(1)),
        (stream.cost_sums(u, v, reg, rows=False), (P * C).sum(0)),
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-13)
    allowed = C[dense.C.isfinite()]
    assert float(allowed.max() - allowed.min()) <= stream.spread < 12 * float(C.max())


@pytest.mark.parametrize("rule", RULES)
def test_float32_stays_near_float64(rule: Rule) -> None:
    dense, stream, _ = both(rule, 301, 217, 3, torch.float32)
    u, v = (t.float() for t in duals(dense, 0.1))
    for rows in (True, False):
        expected = dense.log_ratio(u.double(), v.double(), 0.1, rows)
        torch.testing.assert_close(stream.log_ratio(u, v, 0.1, rows).double(), expected, rtol=0, atol=2e-5)
    if rule.root:  # of squared distances it is without p and q
        again = both(rule, 301, 217, 3)[1].in_float32().log_ratio(u, v, 0.1, rows=True)
        torch.testing.assert_close(again, stream.log_ratio(u, v, 0.1, rows=True), rtol=0, atol=2e-5)


def test_a_row_without_an_allowed_pair_has_no_mass_and_forbidden_pairs_none_exactly() -> None:
    x, y = clouds(300, 200, 2)
    own, other = labels(300, 3), labels(200, 3, 1)
    own[:5] = 7
    logs = torch.zeros(300, dtype=torch.float64), torch.zeros(200, dtype=torch.float64)
    stream = Stream(squared_euclidean(x, y), *logs, rule=Rule(labels=(own, other)))
    ratio = stream.log_ratio(*logs, 0.01, rows=True)
    assert ratio.isneginf().nonzero()[:, 0].tolist() == list(range(5))
    P = stream.apply(*logs, 0.01, torch.eye(200, dtype=torch.float64))
    assert float(P[own[:, None] != other].abs().max()) == 0


def test_cost_sums_of_clouds_far_apart_are_those_of_the_points_given() -> None:
    """Squared distances of about 3·10⁶, which clouds about the origin do not have."""
    x, y = clouds(30, 40, 3)
    y = y + 1000
    stream = Stream(squared_euclidean(x, y), x[:, 0] * 0, y[:, 0] * 0)
    C = squared_cost(x, y)
    u, v = C.amin(1), C[0] - C[0].amin()
    P = ((u[:, None] + v - C) / 10 - 1).exp()
    torch.testing.assert_close(stream.cost_sums(u, v, 10.0), (P * C).sum(1), rtol=1e-9, atol=0)


def test_plain_distances_of_clouds_far_apart_move_both_alike() -> None:
    x, y = clouds(50, 40, 2)
    x, y = x + 5, y + 9
    zero = torch.zeros(50, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)
    near_x, near_y, p, q = centred(x, y, *zero, Rule(root=True))
    torch.testing.assert_close(distances(near_x, near_y), distances(x, y), rtol=1e-14, atol=0)
    assert float(p.abs().max()) == float(q.abs().max()) == 0
    found = of.solve_streamed(x, y, reg=0.1, cost="euclidean", tol=1e-10)
    expected = pot_plan(distances(x, y) - 3, None, None, 0.1)
    torch.testing.assert_close(found.plan.dense(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rule", RULES[1:])
def test_tiles_of_labels_that_do_not_match_are_left_out(rule: Rule) -> None:
    """Clusters of one label each: rows of equal labels look at their own, others leave it out."""
    x, y = clouds(1280, 1280, 2)
    at = torch.arange(1280) // 128
    x, y = (t / 10 + at[:, None] for t in (x, y))
    rule = rule._replace(labels=(at, at))
    stream = Stream(squared_euclidean(x, y), x[:, 0] * 0, y[:, 0] * 0, rule=rule)
    looked = [
        len(places) for _, chunks in stream._tiles(stream.x, stream.y, y[:, 0] * 0, 100.0, None) for places, *_ in chunks
    ]
    assert sum(looked) == (1280 if rule.same else 9 * 1280)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 3])
def test_stages_on_fewer_points_lead_to_the_plan_for_plain_distances(d: int) -> None:
    x, y = clouds(4500, 4200, d)
    logs = (torch.full_like(t[:, 0], 1 / len(t)).log() for t in (x, y))
    stream = Stream(squared_euclidean(x, y), *logs, rule=Rule(root=True))
    thin = stream.thinned(3, 4)
    assert (len(thin.log_a), len(thin.log_b), thin.rule.root) == (1500, 1050, True)
    assert float(thin.x.shift.abs().max()) == 0
    *_, error, layers = list(coarse_to_fine(stream, 0.01 * stream.spread, 1e-3, 200))[-1]
    assert error < 1e-3
    assert layers < 200


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


NINE, SEVEN = [1] * 9, [1] * 7
BAD = [
    (dict(labels=NINE), "labels must be a pair of arrays, of a and of b, got 9 of them"),
    (dict(labels=np.ones(9)), "labels must be a pair of arrays, of a and of b, got ndarray"),
    (dict(labels=(NINE, NINE)), r"labels\[1\] must have shape \(7,\), got \(9,\)"),
    (dict(labels=([NINE], SEVEN)), r"labels\[0\] must have shape \(9,\), got \(1, 9\)"),
    (dict(labels=(np.ones(9), SEVEN)), r"labels\[0\] must be whole numbers or strings, got dtype float64"),
    (dict(labels=(NINE, [None] * 7)), r"labels\[1\] must be whole numbers or strings, got dtype object"),
    (dict(labels=([[1], [2, 3]], SEVEN)), r"labels\[0\] must be whole numbers or strings, got 2 of them"),
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
    (dict(cost="euclidean", reg=0.0), "reg must be a positive"),
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
    with pytest.raises(ValueError, match="reg is too small: cost/reg overflows"):
        of.solve_streamed(1e150 * x, y, cost="euclidean", reg=1e-200)
    with pytest.raises(ValueError, match="executor 'stream' goes with neither"):
        of.solve_sample(x, y, executor="stream", mask=torch.ones(9, 7) > 0, labels=(NINE, SEVEN))
