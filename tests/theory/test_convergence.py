"""The statements of docs/theory.md about far-away points: non-expansiveness, descent, global convergence, the sink token."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from otformer import AligningTransformer
from otformer.network.features import cost_matrix
from otformer.network.schedule import Annealed, Gradient, Relaxed
from otformer.theory import arrival_depth, residual_bound
from otformer.transport import reference

Point = tuple[Tensor, Tensor]


class Problem:
    """A random problem with unequal marginals, and the network's layers on it started from any (u, v)."""

    def __init__(self, seed: int, n: int = 6, m: int = 5, reg: float = 0.2) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.reg, self.C = reg, self.uniform(n, m)
        self.a, b = 0.2 + self.uniform(n), 0.2 + self.uniform(m)
        self.b = b * self.a.sum() / b.sum()

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=self.random)

    def far(self, scale: float) -> Point:
        return scale * (2 * self.uniform(len(self.a)) - 1), scale * (2 * self.uniform(len(self.b)) - 1)

    def run(self, net: AligningTransformer, start: Point) -> list[Point]:
        """Every layer's (u, v), written into the prompt's own registers and read back from them."""
        prompt, r = net.prompt(cost_matrix(self.C), a=self.a, b=self.b), net.registers
        Z, (n, m) = prompt.Z.clone(), self.C.shape
        Z[0, :n, r.column("u")], Z[0, :m, r.column("v")] = start
        iterates = [start]
        for layer in range(net.depth):
            Z = net.block(Z, layer)
            iterates.append((Z[0, :n, r.column("u")], Z[0, :m, r.column("v")]))
        return iterates

    def network(self, schedule: Gradient | Relaxed, depth: int) -> AligningTransformer:
        return AligningTransformer(self.C.shape[0], self.reg, depth, schedule)

    def dual(self, point: Point) -> float:
        return float(reference.dual(self.C, *point, self.reg, self.a, self.b))


def sup(p: Point, q: Point) -> float:
    """‖(u, −v) − (u', −v')‖_∞; the signs do not change it."""
    return max(float((p[0] - q[0]).abs().max()), float((p[1] - q[1]).abs().max()))


def test_tanh_identity(record_property) -> None:
    """(S − a)/(S + a) = tanh(½ log(S/a)), over 40 decades."""
    S, a = np.logspace(-20, 20, 4001), np.logspace(-3, 3, 4001)
    record_property("problems", len(S))
    assert np.allclose((S - a) / (S + a), np.tanh(0.5 * np.log(S / a)), rtol=0, atol=1e-14)


@pytest.mark.parametrize("step", [0.1, 1.0, 2.0])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_every_layer_is_non_expansive_up_to_twice_lambda(step: float, scale: float) -> None:
    for seed in range(20):
        problem = Problem(seed)
        for schedule in (Gradient(step * problem.reg), Relaxed(step / 2)):
            net = problem.network(schedule, 2)
            runs = [problem.run(net, problem.far(scale)) for _ in range(2)]
            before, middle, after = (sup(p, q) for p, q in zip(*runs, strict=True))
            assert after <= middle * (1 + 1e-12)
            assert middle <= before * (1 + 1e-12)


def test_a_longer_step_expands() -> None:
    """n = m = 1, C = −λ: u' = u − γ tanh((u+v)/2λ). Two points that differ by ±δ in (u, −v) part for γ > 2λ."""
    reg, delta = 0.2, 1e-3
    for factor, expands in ((2.0, False), (2.1, True), (3.0, True)):
        net = AligningTransformer(1, reg, 1, Gradient(factor * reg))
        problem = Problem(0, 1, 1, reg)
        problem.C, problem.a, problem.b = torch.full((1, 1), -reg).double(), torch.ones(1).double(), torch.ones(1).double()
        p, q = [(torch.full((1,), s * delta / 2).double(),) * 2 for s in (1, -1)]
        gap = sup(problem.run(net, p)[1], problem.run(net, q)[1])
        assert (gap > delta * 1.05) == expands
        assert gap == pytest.approx(delta * (factor - 1), rel=1e-3)  # |1 − γ/λ|


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.4, 1.0, 1.9])
def test_both_heads_converge_from_far(step: float) -> None:
    """Any γ < 2λ; the distance to the solution found never grows, and the plan is Sinkhorn's."""
    for seed in range(3):
        problem = Problem(seed)
        iterates = problem.run(problem.network(Gradient(step * problem.reg), 1500), problem.far(5.0))
        expected = reference.plan(problem.C, *reference.sinkhorn(problem.C, problem.reg, problem.a, problem.b), problem.reg)
        assert torch.allclose(reference.plan(problem.C, *iterates[-1], problem.reg), expected, atol=1e-10)
        gaps = np.array([sup(p, iterates[-1]) for p in iterates])
        assert (np.diff(gaps) <= 1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize("omega", [0.3, 1.0, 1.5, 1.8])
def test_dual_falls_in_every_layer_and_the_plan_converges(omega: float) -> None:
    for seed in range(4):
        problem = Problem(seed)
        iterates = problem.run(problem.network(Relaxed(omega), 1200), problem.far(5.0))
        values = np.array([problem.dual(p) for p in iterates])
        falls = values[:-1] - values[1:]
        assert (falls >= -1e-12 * np.abs(values[:-1]).clip(1)).all()
        assert (falls[:20] > 0).all()
        expected = reference.plan(problem.C, *reference.sinkhorn(problem.C, problem.reg, problem.a, problem.b), problem.reg)
        assert torch.allclose(reference.plan(problem.C, *iterates[-1], problem.reg), expected, atol=1e-10)


def test_one_heads_change_of_the_dual() -> None:
    """L' − L = λ Σ a_i [e^{z−2ωt} − e^z + 2ωt] with z = log(S/a), t = tanh(z/2)."""
    problem = Problem(3)
    for omega in (0.7, 1.8, 1.95):
        p = problem.far(0.5)
        q = problem.run(problem.network(Relaxed(omega), 1), p)[1]
        z = (reference.plan(problem.C, *p, problem.reg).sum(1) / problem.a).log()
        change = problem.reg * float((problem.a * h(z, omega)).sum())
        assert problem.dual(q) - problem.dual(p) == pytest.approx(change, rel=1e-10)


def h(z: Tensor, omega: float) -> Tensor:
    t = torch.tanh(z / 2)
    return z.exp() * torch.expm1(-2 * omega * t) + 2 * omega * t


def test_the_largest_omega_for_which_the_dual_falls() -> None:
    """ω_c = 1.88401…: h < 0 for all z ≠ 0 at 1.8 and at 1.884, not at 1.8841 (near z = −0.753)."""
    z = torch.linspace(-40, 40, 800_001, dtype=torch.float64)
    z = z[z.abs() > 1e-3]
    assert (h(z, 1.8) < 0).all()
    assert (h(z, 1.884) < 0).all()
    assert h(z, 1.8841).max() > 0
    assert h(torch.tensor(-0.7528).double(), 1.8841) > 0


def test_polynomial_of_the_proof_for_omega_1_8() -> None:
    """p(τ) = 0.2 − 0.72τ + 1.08τ² − 0.23328(τ³ + τ⁴) > 0 on [0, 1]: numpy's roots, and the least value."""
    p = np.polynomial.Polynomial([0.2, -0.72, 1.08, -0.23328, -0.23328])
    assert not any(abs(root.imag) < 1e-9 and -1e-9 <= root.real <= 1 for root in p.roots())
    assert p(np.linspace(0, 1, 10_001)).min() > 0.05
    x = np.linspace(0.01, 1.8, 1000)
    assert (x / np.tanh(x) >= 1 + x**2 / 3 - x**4 / 45).all()
    assert (x / np.tanh(x) <= 1 + x**2 / 3).all()


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.5, 1.0, 1.5])
def test_residual_bound_holds_at_every_layer(step: float) -> None:
    """Ours: max |tanh(½ log(S/a))| ≤ R/(λ√(πℓ g(1−g))), from starts near and far."""
    tightest = math.inf
    for seed in range(5):
        problem = Problem(seed)
        solution = reference.sinkhorn(problem.C, problem.reg, problem.a, problem.b)
        start = problem.far([0.0, 0.2, 1.0, 5.0, 20.0][seed])
        iterates = problem.run(problem.network(Gradient(step * problem.reg), 300), start)
        for depth, (u, v) in enumerate(iterates[1:], start=1):
            P = reference.plan(problem.C, u, v, problem.reg)
            t = torch.cat([(0.5 * (P.sum(1) / problem.a).log()).tanh(), (0.5 * (P.sum(0) / problem.b).log()).tanh()])
            bound = residual_bound(problem.reg, sup(start, solution), depth, step * problem.reg)
            assert float(t.abs().max()) <= bound
            tightest = min(tightest, bound / float(t.abs().max()))
    assert tightest < 50  # not a bound that could never fail


def test_arrival_takes_the_cost_over_the_step() -> None:
    """u_i + v_j moves by at most γ a layer when heads alternate: about min_j C_ij/γ layers. Annealing needs fewer."""
    reg = 0.02
    x, y = torch.tensor([[0.0], [0.1]]).double(), torch.tensor([[2.0], [2.1]]).double()  # costs of about 4, far above λ
    C = torch.cdist(x, y) ** 2
    P, least = reference.plan(C, *reference.sinkhorn(C, reg), reg), arrival_depth(C, reg, 2 * reg, error=0.1)

    def error(schedule: Relaxed | Annealed, depth: int) -> float:
        return float((AligningTransformer(1, reg, depth, schedule)(x, y, keep="last", warn=False).plan() - P).abs().max())

    assert least > 100
    assert error(Relaxed(1.0), math.floor(least)) > 0.1
    assert error(Relaxed(1.0), math.ceil(least) + 40) < 1e-6
    assert error(Annealed(start=4.0, omega=1.0, stages=8), 48) < 1e-6


@pytest.mark.parametrize(
    ("schedule", "n"), [(Gradient(), 5), (Relaxed(1.0), 5), (Relaxed(1.8), 3), (Relaxed(), 4), (Gradient(), 1)]
)
def test_sink_token_tends_to_minus_lambda_log_n(schedule: Gradient | Relaxed, n: int) -> None:
    """The sink's duals follow their own scalar recursion, tend to −λ log n, and the marginals to 1/n."""
    reg, generator = 0.3, torch.Generator().manual_seed(n)
    x, y = torch.rand(2, n, 2, dtype=torch.float64, generator=generator)
    trace = AligningTransformer(2, reg, 600, schedule, sink="token")(x, y)
    r, s = trace.network.registers, {"u": 0.0, "v": 0.0}
    for k, layer in enumerate(schedule.layers(reg, 600)):
        for name, step in (("u", layer.rows), ("v", layer.columns)):
            s[name] -= step * math.tanh(0.5 * (math.log(n) + s[name] / reg))
            assert float(trace.Z(k + 1)[-1, r.column(name)]) == pytest.approx(s[name], abs=1e-12)
    assert s["u"] == pytest.approx(-reg * math.log(n), abs=1e-10)
    C = torch.cdist(x, y) ** 2
    expected = reference.plan(C, *reference.sinkhorn(C, reg), reg)
    assert torch.allclose(trace.plan(), expected / n, atol=1e-10)
    assert torch.allclose(trace.attention(), expected, atol=1e-10)
