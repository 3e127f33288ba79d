"""The recipes of CONTRIBUTING, "How to add", followed word by word: what is written as they say works where they say.

Layers are in nn/test_layer_recipe.py, experiments in experiments/test_experiment_recipe.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ot
import pytest
import torch

import otformer as of
from helpers.messages import refuses
from otformer.lab.experiments import registry
from otformer.lab.experiments.experiment import SENTENCES
from otformer.network import schedule
from otformer.network.schedule import Layer, turns
from otformer.transport.costs.cost import VERBS, Cost
from otformer.transport.types import Goal, Problem, Solved

ROOT = Path(__file__).parents[1]
RECIPES = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## How to add")[2]


def drawn(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def problem(n: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = drawn()
    return rng.random((n, m)), rng.dirichlet(np.full(n, 5.0)), rng.dirichlet(np.full(m, 5.0))


# A schedule


@dataclass(frozen=True)
class Halving:
    """Alternating heads; λ is twice the network's own in the first half of the layers."""

    def layers(self, reg: float, depth: int) -> tuple[Layer, ...]:
        first = depth // 2
        return (*turns(2 * reg, 1.0, first), *turns(reg, 1.0, depth - first))


@pytest.mark.parametrize("given", ["halving", Halving()], ids=["by name", "as a value"])
def test_a_schedule(given, monkeypatch):
    monkeypatch.setitem(schedule.SCHEDULES, "halving", Halving)
    x, y = drawn().random((2, 6, 2))
    P = ot.sinkhorn([], [], ((x[:, None] - y) ** 2).sum(2), 0.1, "sinkhorn_log", 10_000, 1e-13)
    trace = of.AligningTransformer(2, 0.1, 1000, schedule=given)(x, y)
    assert np.abs(trace.attention(-1).numpy() / 6 - P).max() < 1e-8
    for options in ({"schedule": given}, {"solver": of.Network(given)}):
        r = of.solve(((x[:, None] - y) ** 2).sum(2), reg=0.1, tol=1e-9, max_depth=1000, **options)
        assert r.converged
        assert np.abs(r.plan - P).max() < 1e-8
    with refuses("executor='stream'", "schedule"):
        of.solve_sample(x, y, executor="stream", schedule=given)
    with refuses("M", "be a cost matrix for Network", "Ring"):
        of.solve(Ring(x[:, 0], y[:, 0]), schedule=given)


# A solver


@dataclass(frozen=True)
class Plain:
    """Sinkhorn's steps, nothing else."""

    def run(self, problem: Problem, goal: Goal) -> Solved:
        problem = problem.as_tensors()
        reg = problem.entropy
        kernel = problem.cost.kernel(problem.a.log(), problem.b.log(), reg)
        u, v = problem.start or (torch.zeros_like(problem.a), torch.zeros_like(problem.b))
        depth = 0
        while depth + 3 <= goal.max_depth:
            u = u - reg * kernel.log_ratio(u, v, reg, rows=True)
            v = v - reg * kernel.log_ratio(u, v, reg, rows=False)
            depth += 3
            if float((problem.a * kernel.log_ratio(u, v, reg, rows=True).expm1()).abs().sum()) < goal.tol:
                break
        return Solved(u, v, depth, "plain Sinkhorn")


@pytest.mark.parametrize("n", [30, 500])
def test_a_solver(n):
    M, a, b = problem(n, n + 3)
    r, s = (of.solve(M, a, b, reg=0.1, tol=1e-9, solver=solver) for solver in (Plain(), None))
    assert r.converged
    assert r.method == "plain Sinkhorn"
    assert isinstance(r.plan, np.ndarray)
    assert np.abs(r.plan - s.plan).max() < 1e-9
    assert r.value == pytest.approx(s.value, rel=1e-9)
    again = of.solve(M, a, b, reg=0.1, tol=1e-8, solver=Plain(), potentials=r.potentials)
    assert again.depth <= 3 < r.depth  # it has begun where it was told
    found = []
    for solver in (Plain(), None):
        moving = [torch.tensor(t, requires_grad=True) for t in (M, a, b)]
        of.solve(*moving, reg=0.1, tol=1e-10, solver=solver).value.backward()
        found.append([t.grad for t in moving])
    torch.testing.assert_close(*found, rtol=0, atol=1e-8)


def test_a_solver_takes_points_and_costs_too():
    x, y = drawn().random((2, 40))
    assert of.solve_sample(x[:, None], y[:, None], solver=Plain()).converged
    r, s = (of.solve(Ring(x, y), reg=0.1, tol=1e-9, solver=solver) for solver in (Plain(), None))
    assert r.value == pytest.approx(s.value, rel=1e-9)


@pytest.mark.parametrize(
    ("answer", "expected", "got"),
    [
        (lambda p: (p.a, p.b), "return a Solved", "a tuple"),
        (lambda p: Solved(p.b, p.a, 2, "turned"), r"return u of shape (30,) from Broken.run", "(20,)"),
        (lambda p: Solved(p.a * np.nan, p.b, 2, "nan"), "return potentials that are numbers from Broken.run", "nan in u"),
    ],
)
def test_a_solver_that_breaks_its_word_is_refused_by_its_name(answer, expected, got):
    class Broken:
        def run(self, problem: Problem, goal: Goal) -> Any:
            return answer(problem)

    with refuses("solver", expected, got):
        of.solve(problem(30, 20)[0], solver=Broken())


# A cost


class Ring(Cost):
    """The squared distance on a circle of length 1."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y, self.shape, self.spread = x, y, (len(x), len(y)), 0.25

    @property
    def C(self) -> np.ndarray:
        apart = np.abs(self.x[:, None] - self.y)
        return np.minimum(apart, 1 - apart) ** 2

    def log_sums(self, h, reg, rows):
        C = torch.from_numpy(self.C if rows else self.C.T)
        return torch.logsumexp((h - C) / reg, 1)

    def _plan(self, u, v, reg):
        return ((u[:, None] + v - torch.from_numpy(self.C)) / reg - 1).exp()

    def products(self, u, v, reg, values, rows):
        P = self._plan(u, v, reg)
        return (P if rows else P.T) @ values

    def cost_sums(self, u, v, reg, rows):
        return (self._plan(u, v, reg) * torch.from_numpy(self.C)).sum(1 if rows else 0)

    def least(self, potential, k, rows):
        reduced = (self.C if rows else self.C.T) - potential
        places = reduced.argsort(1)[:, :k]
        return np.take_along_axis(reduced, places, 1), places

    def costs(self, i, j):
        return self.C[i, j]

    def take(self, rows, columns):
        return Ring(self.x[np.asarray(rows)], self.y[np.asarray(columns)])


def ring(n: int = 30, m: int = 25) -> tuple[Ring, np.ndarray, np.ndarray]:
    _, a, b = problem(n, m)
    return Ring(drawn(1).random(n), drawn(2).random(m)), a, b


DOORS = {
    "solve": lambda M, a, b: of.solve(M, a, b, reg=0.02, tol=1e-10),
    "unbalanced": lambda M, a, b: of.solve_unbalanced(M, a, 2 * b, reg=0.05, tol=1e-10),
    "batch": lambda M, a, b: of.solve_batch([(M, a, b)], reg=0.02, tol=1e-10)[0],
    "exact": lambda M, a, b: of.solve(M, a, b, reg=0),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("light", [False, True], ids=["all", "a weight of 0"])
def test_a_cost(door, light):
    cost, a, b = ring()
    if light:
        a[3], a[4] = 0.0, a[3] + a[4]
    r, s = (DOORS[door](M, a, b) for M in (cost, cost.C))
    assert r.converged
    assert r.value == pytest.approx(s.value, rel=1e-8)
    plans = (P.toarray() if door == "exact" else np.asarray(P) for P in (r.plan, s.plan))
    np.testing.assert_allclose(*plans, rtol=0, atol=1e-9)


def test_a_cost_has_gradients_in_weights_and_reg_and_tensors_on_request():
    cost, a, b = ring()
    found = []
    for M in (cost, cost.C):
        moving = [torch.tensor(t, requires_grad=True, dtype=torch.float64) for t in (a, b, 0.1)]
        of.solve(M, *moving, tol=1e-11).value.backward()
        found.append([t.grad for t in moving])
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-8)
    assert isinstance(of.solve(cost, reg=0.1).value, float)
    cost.tensors = True
    assert isinstance(of.solve(cost, reg=0.1).value, torch.Tensor)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_cost_without_a_verb_is_refused_by_its_name(verb, door):
    cost, a, b = ring()
    setattr(cost, verb, None)
    with pytest.raises(ValueError, match=f"M must have the verb '{verb}'.*, got Ring without it"):
        DOORS[door](cost, a, b)


def test_what_needs_a_matrix_refuses_a_cost_by_the_argument():
    cost, a, b = ring()
    for name, call in {
        "solve_partial": lambda: of.solve_partial(cost, mass=0.5),
        "sinkhorn": lambda: of.sinkhorn(a, b, cost, 0.1),
        "Newton": lambda: of.solve(cost, solver=of.Newton()),
        "Network": lambda: of.solve(cost, solver=of.Network()),
    }.items():
        with refuses("M", f"be a cost matrix for {name}", "Ring, which forms none"):
            call()
    with refuses("mask", "be None where M is a Cost, here Ring"):
        of.solve(cost, mask=np.ones(cost.shape, bool))


@pytest.mark.parametrize(
    ("verb", "wrong", "got"),
    [
        ("log_sums", lambda t: t.numpy(), "numpy.ndarray"),
        ("log_sums", lambda t: t.float(), "torch.float32 of shape"),
        ("log_sums", lambda t: t[:3], r"torch.float64 of shape (3,)"),
        ("products", lambda t: t.numpy(), "numpy.ndarray"),
        ("cost_sums", lambda t: t.numpy(), "numpy.ndarray"),
    ],
)
def test_a_verb_that_returns_something_else_is_refused_by_its_name(verb, wrong, got, monkeypatch):
    right = getattr(Ring, verb)
    monkeypatch.setattr(Ring, verb, lambda *args, **named: wrong(right(*args, **named)))
    cost, a, b = ring()
    with refuses("M", f"from Ring.{verb}", got):
        assert of.solve(cost, a, b).value_linear


def test_a_spread_that_is_no_number_is_refused_by_its_name():
    cost, *_ = ring()
    cost.spread = float("nan")
    with refuses("M", "have a spread", "nan of Ring"):
        of.solve(cost)


# The text itself

PLACES = (ROOT, ROOT / "src" / "otformer", ROOT / "src")
NAMES = set(re.findall(r"`([^`\n]+)`", RECIPES))


def test_every_file_of_the_recipes_exists():
    files = {name for name in NAMES if re.fullmatch(r"[\w/.-]+(\.(py|toml|md)|/)", name)}
    assert len(files) > 20
    here = {*PLACES, PLACES[1] / "transport" / "costs", PLACES[1] / "lab" / "experiments"}
    lacking = {name for name in files if not any((place / name).exists() for place in here)}
    assert lacking == {"my_claim.py"}


def test_every_name_in_the_recipes_exists():
    """Names of classes and constants, and of functions of a module, stand in a file of the package or of the tests."""
    files = [*(ROOT / "src" / "otformer").rglob("*.py"), *(ROOT / "tests").rglob("test_*.py")]
    words = set(re.findall(r"\w+", "\n".join(path.read_text("utf-8") for path in files if path != Path(__file__))))
    names = {name for name in NAMES if re.match(r"[A-Z_]|(checks|inputs|figures|context|problem|kernel|goal)\.", name)}
    assert len(names) > 25
    for name in names:
        assert set(re.findall(r"[A-Za-z_]\w+", name)) - words <= {"Name"}, name


def test_the_verbs_of_a_cost_and_the_keys_of_an_experiment_are_those_of_the_text():
    table = re.findall(r"^\| `(\w+)", RECIPES, re.MULTILINE)
    assert tuple(table) == VERBS
    needed = re.search(r"Needed to run are (.*?)\. The report", RECIPES, re.DOTALL)[1]
    assert set(re.findall(r"`(\w+)`", needed)) == {*registry.REQUIRED, *SENTENCES}
    assert set(re.findall(r"`\[\[(\w+)\]\]`", RECIPES)) == {each.part for each in registry.EXPERIMENTS.values()}
