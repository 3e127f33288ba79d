"""Forward-mode derivatives of every public function and layer, in every tensor argument: right, or refused in one line.

The oracle is a central difference of the function itself, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import forward_ad

import otformer as of
from oracles import uniform

n, m = 4, 5
C, X, Y = uniform(0, n, m), uniform(1, n, 2), uniform(2, m, 2)
A, B, REG = uniform(3, n) + 0.5, uniform(4, m) + 0.5, torch.tensor(0.3, dtype=torch.float64)
B = B * (A.sum() / B.sum())
CLOSE = {"tol": 1e-12}
MASK = torch.ones(n, m, dtype=torch.bool)
MASK[1, 2] = MASK[3, 0] = False
LINE = {"u": uniform(5, n), "v": uniform(6, m), "a": A, "b": B}
LAYERS = {"logits": uniform(7, n, n) * 2, "a": A, "b": A.flip(0)}
ATTENTION = of.nn.SinkhornAttention(4, 2, batch_first=True).double()
TOKENS = {name: uniform(k, 1, 3, 4) for k, name in enumerate(("query", "key", "value"))}
FEATURES = of.squared_euclidean(X, Y)
SQUARE, ITERATED = of.SinkhornTransformer(dim=2, reg=0.5, depth=10), of.nn.DoublyStochastic(iterations=5)
NETWORK, MINIMAL = of.AligningTransformer(dim=2, reg=0.5, depth=10), of.MinimalTransformer(dim=2, reg=0.5, depth=10)


def entropic(r: Any) -> list[Any]:
    u, v = r.potentials  # fixed up to a constant: their sums are fixed
    return [r.value, r.value_linear, r.plan, u[:, None] + v, r.marginal_a, r.apply(B), r.map(Y)]


def fit(b: Tensor, a: Tensor) -> Tensor:
    return b * (a.sum() / b.sum())


def shape(weights: Tensor, like: Tensor) -> Tensor:
    """Weights whose sum stays: the derivative of an optimum in others is not defined (emd2, as in POT)."""
    return weights - weights.mean() + like.mean()


def distances(x: Tensor, y: Tensor) -> Tensor:
    return (x[:, None] - y).norm(dim=-1)


def sharded(**given: Tensor) -> Any:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return of.solve_sharded(**given)
    finally:
        dist.destroy_process_group()


def matrix(**options: Any) -> Callable[..., Any]:
    return lambda C, a, b, reg: entropic(of.solve(C, a, fit(b, a), reg, **CLOSE, **options))


def sample(metric: str, **options: Any) -> Callable[..., Any]:
    return lambda x, y, a, b, reg: entropic(of.solve_sample(x, y, a, fit(b, a), reg, metric=metric, **CLOSE, **options))


COSTS = {"C": C, "a": A, "b": B, "reg": REG}
WITHOUT_REG = {"C": C, "a": A, "b": B}
POINTS = {"x": X, "y": Y, "a": A, "b": B, "reg": REG}
CLOUDS = {"x": X, "y": Y, "a": A, "b": B}
PARTS = {"x": FEATURES.x, "y": FEATURES.y, "p": FEATURES.x_sq, "q": FEATURES.y_sq}
HISTOGRAMS = {"a": A, "b": B, "C": C, "reg": REG}
GIVEN: dict[str, tuple[Callable[..., Any], dict[str, Tensor]]] = {  # what has a tangent
    "solve": (matrix(), COSTS),
    "solve, masked": (matrix(mask=MASK), COSTS),
    "solve, a solver": (matrix(solver=of.Newton()), COSTS),
    "solve, Features": (lambda **parts: entropic(of.solve(of.Features(*parts.values()), A, B, 0.3, **CLOSE)), PARTS),
    "solve_sample": (sample("sqeuclidean"), POINTS),
    "solve_sample, distances": (sample("euclidean"), POINTS),
    "solve_sample, cosine": (sample("cosine"), POINTS),
    "solve_sample, a function": (lambda x, y: entropic(of.solve_sample(x, y, metric=distances, **CLOSE)), {"x": X, "y": Y}),
    "solve_batch": (lambda C, a, b: entropic(of.solve_batch([(C, a, fit(b, a))], 0.3, **CLOSE)[0]), WITHOUT_REG),
    "solve_batch, stacked": (lambda C: entropic(of.solve_batch(C, 0.3, **CLOSE)[1]), {"C": uniform(8, 2, n, m)}),
    "sinkhorn": (lambda a, b, C, reg: of.sinkhorn(a, fit(b, a), C, reg, stopThr=1e-13), HISTOGRAMS),
    "sinkhorn, several": (
        lambda b: of.sinkhorn(A, b * (A.sum() / b.sum(0)), C, 0.3, stopThr=1e-13), {"b": torch.stack([B, B], 1)},
    ),
    "sinkhorn2": (lambda a, b, C, reg: of.sinkhorn2(a, fit(b, a), C, reg, stopThr=1e-13), HISTOGRAMS),
    "emd2": (lambda a, b, C: of.emd2(shape(a, A), shape(b, B), C), {"a": A, "b": B, "C": C}),
    "emd_batch": (lambda x, y, a, b: of.emd_batch(x, y, shape(a, A), shape(b, B)).cost, CLOUDS),
    "divergence": (lambda x, y, a, b: of.divergence(x, y, a, fit(b, a), 0.3, 1e-12), CLOUDS),
    "SamplesLoss": (lambda x, y, a, b: of.SamplesLoss(blur=0.5, tol=1e-12)(a, x, fit(b, a), y), CLOUDS),
    "SamplesLoss, p = 1": (lambda x, y, a, b: of.SamplesLoss(p=1, blur=0.5, reach=1.0, tol=1e-12)(a, x, b, y), CLOUDS),
    "wasserstein_1d": (lambda u, v, a, b: of.wasserstein_1d(u, v, a, fit(b, a), p=2), LINE),
    "sort": (of.sort, {"values": X[:, 0]}),
    "nn.EarthMover": (lambda x, y: of.nn.EarthMover("euclidean")(x, y), {"x": X, "y": Y}),
    "nn.OTPlanSampler": (lambda x: of.nn.OTPlanSampler(generator=0).sample_plan(x, X + 0.1, replace=False)[0], {"x": X}),
    "nn.Transport": (
        lambda x, y, a, b: of.nn.Transport(reg=0.3, tol=1e-12)(x, y, a, fit(b, a)), CLOUDS,
    ),
    "nn.Transport, points": (lambda x, y: of.nn.Transport(0.3, tol=1e-12, output="points")(x, y), {"x": X, "y": Y}),
    "nn.Transport, cost": (lambda C: of.nn.Transport(reg=0.3, tol=1e-12)(cost=C), {"C": C}),
    "nn.Transport, learned": (
        lambda log_reg: torch.func.functional_call(of.nn.Transport(), {"log_reg": log_reg}, (X, Y)),
        {"log_reg": REG.log()},
    ),
    "a vector": (lambda w: of.solve_streamed(X, Y, reg=0.3).apply(w), {"w": B}),
    "squared_euclidean": (lambda x, y: of.squared_euclidean(x, y).cost(), {"x": X, "y": Y}),
    "inner_product": (lambda x, y: of.inner_product(x, y).cost(), {"x": X, "y": Y}),
    "cosine": (lambda x, y: of.cosine(x, y).cost(), {"x": X, "y": Y}),
    "mahalanobis": (lambda x, y: of.mahalanobis(x, y, torch.eye(2)).cost(), {"x": X, "y": Y}),
    "cost_matrix": (lambda C: of.cost_matrix(C).cost(), {"C": C}),
    "SmoothCost": (
        lambda x, y: of.SmoothCost(lambda s, t: (s - t) ** 2, 5, -1.0, 2.0)(x[:, :1], y[:, :1]).cost(), {"x": X, "y": Y},
    ),
    "AligningTransformer": (lambda x, y, a, b: NETWORK(x, y, a, b, warn=False).plan(), CLOUDS),
    "MinimalTransformer": (lambda x, y: MINIMAL(x, y, warn=False).plan(), {"x": X, "y": X + 0.1}),
    "CountingSorter": (of.CountingSorter(), {"values": A - 0.5}),  # in steps: its derivative is 0
    "SinkhornTransformer": (lambda x, y: SQUARE(x, y, warn=False).plan(), {"x": X, "y": X + 0.1}),
    "nn.DoublyStochastic, iterations": (lambda logits, a, b: ITERATED(logits, a, fit(b, a)), LAYERS),
    "nn.SoftSort.carry": (lambda columns: of.nn.SoftSort().carry(A, columns), {"columns": X}),
    "nn.SinkhornAttention": (lambda value: ATTENTION(TOKENS["query"], TOKENS["key"], value)[0], {"value": TOKENS["value"]}),
    "load_trained": (lambda x, y: of.load_trained("sort-beyond")(x, y), {"x": X[:, 0], "y": Y[:n, 0].sort().values}),
    "EuclideanDistance": (lambda x, y: of.EuclideanDistance(2, 20, -1.0, 2.0)(x, y).cost(), {"x": X, "y": Y}),
}  # fmt: skip
GRAPH = of.GraphCost(C.to_sparse())
REFUSED: dict[str, tuple[Callable[..., Any], dict[str, Tensor]]] = {  # what has none
    "solve, exact": (lambda C, a, b: of.solve(C, a, b, reg=0), WITHOUT_REG),
    "solve, λ": (lambda reg: of.solve(C, reg=reg, unbalanced=1.0), {"reg": REG}),
    "solve, ρ": (lambda rho: of.solve(C, unbalanced=rho), {"rho": REG}),
    "solve_sample, exact": (lambda x, y, a, b: of.solve_sample(x, y, a, b, reg=0), CLOUDS),
    "solve_sample, streamed": (lambda x, y, a, b, reg: of.solve_sample(x, y, a, b, reg, executor="stream"), POINTS),
    "solve_streamed": (of.solve_streamed, dict(zip(("X_a", "X_b", "a", "b", "reg"), POINTS.values(), strict=True))),
    "solve_streamed, Features": (lambda **parts: of.solve_streamed(None, None, cost=of.Features(*parts.values())), PARTS),
    "solve_streamed, unbalanced": (
        lambda x, y, a, b, reg: of.solve_streamed(x, y, a, b, reg, unbalanced=1.0), POINTS,
    ),
    "solve_batch, λ": (lambda reg: of.solve_batch([C], reg), {"reg": REG}),
    "solve_batch, exact": (lambda C, a, b: of.solve_batch([(C, a, b)], 0), WITHOUT_REG),
    "solve_unbalanced": (lambda C, a, b, reg: of.solve_unbalanced(C, a, b, reg), COSTS),
    "solve_unbalanced, ρ": (lambda rho: of.solve_unbalanced(C, reg_m=rho), {"rho": REG}),
    "solve_partial": (lambda C, a, b, reg, mass: of.solve_partial(C, a, b, reg, mass), {**COSTS, "mass": REG}),
    "solve_sharded": (sharded, {"X_a_local": X, "X_b": Y, "a_local": A, "b": B, "reg": REG}),
    "emd": (of.emd, {"a": A, "b": B, "M": C}),
    "GraphCost": (lambda a, b, reg: of.solve(GRAPH, a, b, reg), {"a": A, "b": B, "reg": REG}),
    "neighbour_graph": (lambda x, y: of.neighbour_graph(x, y, 2), {"x": X, "y": Y}),
    "divergence, λ": (lambda reg: of.divergence(X, Y, reg=reg), {"reg": REG}),
    "SamplesLoss, streamed": (
        lambda x, y, a, b: of.SamplesLoss(blur=0.5, backend="online")(a, x, b, y), CLOUDS,
    ),
    "SamplesLoss, potentials": (lambda x, y, a, b: of.SamplesLoss(blur=0.5, potentials=True)(a, x, b, y), CLOUDS),
    "SamplesLoss, blur": (lambda blur: of.SamplesLoss(blur=blur), {"blur": REG}),
    "wasserstein_1d, p": (lambda p: of.wasserstein_1d([0.0], [1.0], p=p), {"p": REG + 1}),
    "a vector of numpy": (lambda w: of.solve(C.numpy(), reg=0.3).apply(w), {"w": B}),
    "a vector of numpy, exact": (lambda w: of.solve(C.numpy(), reg=0).map(w), {"w": B}),
    "a vector of numpy, streamed": (lambda w: of.solve_streamed(X.numpy(), Y.numpy()).plan @ w, {"w": B}),
    "a list of tensors": (lambda row: of.solve([row, row], reg=0.3), {"row": C[0]}),
    "nn.DoublyStochastic": (of.nn.DoublyStochastic(), LAYERS),
    "nn.SoftSort": (of.nn.SoftSort(), {"values": A, "weights": A}),
    "nn.SoftSort.carry": (lambda **given: of.nn.SoftSort().carry(columns=X, **given), {"values": A, "weights": A}),
    "nn.SoftRank": (of.nn.SoftRank(), {"values": A, "weights": A}),
    "nn.SoftTopK": (of.nn.SoftTopK(2), {"values": A, "weights": A}),
    "nn.SoftQuantile": (of.nn.SoftQuantile(0.3), {"values": A, "weights": A}),
    "nn.SinkhornAttention": (lambda **given: ATTENTION(**{**TOKENS, **given}), {k: TOKENS[k] for k in ("query", "key")}),
    "StockTransformer": (of.StockTransformer(NETWORK), CLOUDS),  # torch's own modules, in torch's words
    "StockEncoder": (of.StockEncoder(NETWORK), CLOUDS),
    "barycenter": (lambda x, y, a, b, reg: of.barycenter([x, y], a=[a, b], reg=reg), POINTS),
    "barycenter, its own": (lambda **given: of.barycenter([X, X + 1], **given), {"weights": A[:2], "b": A, "start": X}),
    "DomainAdapter": (lambda Xs, Xt: of.DomainAdapter().fit(Xs, Xt=Xt), {"Xs": X, "Xt": Y}),
    "DomainAdapter, new points": (of.DomainAdapter(reg_e=0.3).fit(X, Xt=Y).transform, {"Xs": X}),
}  # fmt: skip
NO_TENSORS = {  # kinds of results, solvers, schedules, what reads files or text; and what gives whole numbers
    "Alternating", "Annealed", "Barycenter", "BrokenProblems", "ExactResult", "Features", "Gradient", "Mixed", "Network",
    "Newton", "Paper", "Relaxed", "Result", "Trace", "align", "best_omega", "nn", "trained_models", "words",
    "argsort", "assignment", "linear_sum_assignment", "EarthMovers", "Matcher",
}  # fmt: skip


def either(cases: dict[str, tuple[Callable[..., Any], dict[str, Tensor]]]) -> list[Any]:
    return [pytest.param(call, given, name, id=f"{case}: {name}") for case, (call, given) in cases.items() for name in given]


def outputs(call: Callable[..., Any], given: dict[str, Tensor]) -> list[Any]:
    found = call(**given)
    return list(found) if isinstance(found, (list, tuple)) else [found]


def direction(t: Tensor) -> Tensor:
    return 0.1 * uniform(9, t.numel()).reshape(t.shape)


@pytest.mark.parametrize(("call", "given", "name"), either(GIVEN))
def test_tangents_are_differences(call, given, name):
    t, step = direction(given[name]), 1e-5
    with forward_ad.dual_level():
        moved = outputs(call, given | {name: forward_ad.make_dual(given[name], t)})
        tangents = [forward_ad.unpack_dual(out).tangent for out in moved]
    after, before = (outputs(call, given | {name: given[name] + sign * step * t}) for sign in (1, -1))
    for tangent, high, low in zip(tangents, after, before, strict=True):
        expected = (high - low) / (2 * step)
        found = torch.zeros_like(expected) if tangent is None else tangent
        torch.testing.assert_close(found, expected, atol=2e-7, rtol=1e-5)


@pytest.mark.parametrize(("call", "given", "name"), either(REFUSED))
def test_no_tangent_is_lost_in_silence(call, given, name):
    with forward_ad.dual_level():
        moved = given | {name: forward_ad.make_dual(given[name], direction(given[name]))}
        with pytest.raises((ValueError, NotImplementedError)) as raised:
            outputs(call, moved)
    assert "\n" not in str(raised.value) or "that does not support it" in str(raised.value)


def test_every_public_name_is_here():
    covered = {case.removeprefix("nn.").split(",")[0].split(".")[0] for case in (*GIVEN, *REFUSED)}
    assert {*of.__all__, *of.nn.__all__} - NO_TENSORS - covered == set()


def test_forward_and_reverse_mode_do_not_mix():
    """The tangent's own gradient would be wrong."""
    with forward_ad.dual_level():
        M, a = forward_ad.make_dual(C, direction(C)), A.clone().requires_grad_()
        with pytest.raises(ValueError, match="forward-mode and reverse-mode derivatives do not go together"):
            _ = of.solve(M, a, B, 0.3).value


def test_tangents_of_a_plan_too_large_for_eigenvectors():
    M, t, step = uniform(0, 130, 140), uniform(1, 130, 140), 1e-5

    def linear(M):
        return of.solve(M, reg=0.2, tol=1e-11).value_linear

    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(linear(forward_ad.make_dual(M, t))).tangent
    expected = (linear(M + step * t) - linear(M - step * t)) / (2 * step)
    torch.testing.assert_close(tangent, expected, atol=1e-8, rtol=1e-6)


def test_an_impossible_problem_has_no_tangents():
    mask = torch.zeros(n, m, dtype=torch.bool)
    mask[:, 0] = mask[0] = True  # all rows but one want column 0
    with forward_ad.dual_level(), pytest.raises(ValueError, match="no plan with these marginals uses allowed pairs only"):
        of.solve(forward_ad.make_dual(C, direction(C)), reg=0.1, mask=mask)
