"""`DoublyStochastic` against POT, a literal iteration in extended precision, and finite differences; small and large."""

import copy
import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from oracles import pot_plan, uniform
from otformer.nn import DoublyStochastic

SIZES = [(1, 1), (2, 2), (4, 4), (7, 7), (32, 32), (33, 33), (40, 40)]


def logits(seed: int, *shape: int, scale: float = 3.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sums_error(P: torch.Tensor, a: torch.Tensor | float = 1.0, b: torch.Tensor | float = 1.0) -> float:
    return max(float((P.sum(-1) - a).abs().max()), float((P.sum(-2) - b).abs().max()))


@pytest.mark.parametrize("size", SIZES)
def test_the_plan_is_that_of_POT(size):
    L = logits(0, 3, *size, scale=1.0)
    P = DoublyStochastic(0.7, tol=1e-11)(L)
    assert sums_error(P) < 1e-10
    for k in range(3):
        expected = size[0] * pot_plan(-L[k].numpy(), None, None, 0.7)
        np.testing.assert_allclose(P[k], expected, atol=1e-8)


@pytest.mark.parametrize("size", [(3, 5), (5, 3), (20, 50), (50, 20)])
def test_given_sums(size):
    L, a, b = logits(1, 2, *size, scale=1.0), uniform(2, 2, size[0]).softmax(1) * 6, uniform(3, 2, size[1]).softmax(1) * 6
    P = DoublyStochastic(tol=1e-11)(L, a, b)
    for k in range(2):
        np.testing.assert_allclose(P[k] / 6, pot_plan(-L[k].numpy(), a[k].numpy() / 6, b[k].numpy() / 6, 1.0), atol=1e-9)
    one_side = DoublyStochastic(tol=1e-11)(L, a)
    assert sums_error(one_side, a, 6 / size[1]) < 1e-9
    shared = DoublyStochastic(tol=1e-11)(L, a[0], b[0])
    np.testing.assert_allclose(shared[0], P[0], atol=1e-10)


@pytest.mark.parametrize("n", [5, 40])
def test_a_masked_matrix_is_the_matrix_without_what_is_masked(n):
    L = logits(4, 2, n, n)
    rows, columns = torch.ones(2, n, dtype=torch.bool), torch.ones(2, n, dtype=torch.bool)
    rows[1, [0, 3]], columns[1, 1:3] = False, False
    L[1, [0, 3]], L[1, :, 1:3] = torch.nan, torch.inf  # not read
    L.requires_grad_()
    P = DoublyStochastic(tol=1e-11)(L, row_mask=rows, column_mask=columns)
    kept = L.detach()[1][rows[1]][:, columns[1]]
    torch.testing.assert_close(P[1][rows[1]][:, columns[1]], DoublyStochastic(tol=1e-11)(kept), atol=1e-9, rtol=0)
    assert (P[1][~rows[1]] == 0).all()
    assert (P[1][:, ~columns[1]] == 0).all()
    (P * logits(5, n, n)).sum().backward()
    assert L.grad.isfinite().all()
    assert (L.grad[1][~rows[1]] == 0).all()
    assert (L.grad[1][:, ~columns[1]] == 0).all()


@pytest.mark.parametrize("n", [5, 40])
def test_forbidden_entries_are_0_by_mask_or_by_minus_infinity(n):
    L, allowed = logits(6, 3, n, n), torch.rand(n, n, generator=torch.Generator().manual_seed(0)) < 0.6
    allowed |= torch.eye(n, dtype=torch.bool) | torch.eye(n, dtype=torch.bool).roll(1, 0)
    P = DoublyStochastic(tol=1e-10)(L, mask=allowed)
    assert (P[:, ~allowed] == 0).all()
    assert sums_error(P) < 1e-9
    torch.testing.assert_close(P, DoublyStochastic(tol=1e-10)(L.masked_fill(~allowed, -torch.inf)))
    few = DoublyStochastic(tol=1e-10)(L.masked_fill(~allowed, -400.0))  # an independent way to the same
    torch.testing.assert_close(P, few, atol=1e-7, rtol=0)


def test_a_triangular_mask_leaves_the_diagonal():
    P = DoublyStochastic()(logits(7, 2, 8, 8, scale=1.0), mask=torch.ones(8, 8).tril().bool())
    torch.testing.assert_close(P, torch.eye(8).double().expand(2, 8, 8), atol=1e-5, rtol=0)


@pytest.mark.parametrize("scale", [30.0, 300.0, 3000.0])
@pytest.mark.parametrize("n", [3, 8, 40])
def test_sharp_logits_are_assignments(n, scale):
    from scipy.optimize import linear_sum_assignment

    L = logits(8, 2, n, n, scale=scale)
    P = DoublyStochastic(tol=1e-6)(L)
    assert sums_error(P) < 3e-6
    if scale > 1000 and n < 40:
        for k in range(2):
            assert P[k].argmax(1).tolist() == linear_sum_assignment(-L[k].numpy())[1].tolist()


def function(layer, masks, with_weights=True):
    def run(L, theta, phi, log_temperature):
        a, b = (None, None)
        if with_weights:
            absent = ~masks.get("row_mask", torch.ones_like(theta, dtype=torch.bool))
            a, b = 2 * theta.masked_fill(absent, -torch.inf).softmax(-1), 2 * phi.softmax(-1)
        return torch.func.functional_call(layer, {"log_temperature": log_temperature}, (L, a, b), masks)

    return run


@pytest.mark.parametrize(("size", "with_weights"), [((4, 4), False), ((3, 5), True), ((34, 2), True)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("iterations", [None, 3])
def test_gradients_are_those_of_finite_differences(size, with_weights, masked, iterations):
    n, m = size
    layer = DoublyStochastic([0.5, 1.3], learnable=True, tol=1e-13, iterations=iterations)
    masks = {}
    if masked:
        masks["row_mask"] = torch.ones(2, n, dtype=torch.bool)
        masks["row_mask"][1, 0] = False
        masks["mask"] = torch.ones(n, m, dtype=torch.bool)
        masks["mask"][1, 1] = False
        if not with_weights:
            masks["column_mask"] = masks["row_mask"]
    inputs = [logits(9, 2, n, m, scale=1.0), uniform(1, 2, n), uniform(2, 2, m), layer.log_temperature.detach()]
    fast = n > 10
    assert gradcheck(function(layer, masks, with_weights), [t.requires_grad_() for t in inputs], fast_mode=fast)


@pytest.mark.parametrize("n", [4, 16, 40])
def test_low_precision_in_and_out_with_gradients_within_two_percent(n):
    L = logits(10, 8, n, n, scale=2.0)
    probe = logits(11, 8, n, n, scale=1.0)
    found = {}
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        x = L.bfloat16().to(dtype).requires_grad_()
        P = DoublyStochastic(0.8)(x)
        assert P.dtype == dtype
        (P * probe.to(dtype)).sum().backward()
        found[dtype] = P.detach().double(), x.grad.double()
    (P64, g64), (P32, g32), (P16, g16) = found.values()
    torch.testing.assert_close(P32, P64, atol=1e-6, rtol=1e-6)
    assert float((g32 - g64).norm() / g64.norm()) < 1e-5
    assert float((P16 - P32).norm() / P32.norm()) < 5e-3
    assert float((g16 - g32).norm() / g32.norm()) < 0.02


def test_temperatures_of_heads_are_those_of_their_own_layers():
    L = logits(12, 2, 3, 5, 5)
    P = DoublyStochastic([0.3, 1.0, 4.0], tol=1e-10)(L)
    for head, temperature in enumerate((0.3, 1.0, 4.0)):
        torch.testing.assert_close(P[:, head], DoublyStochastic(temperature, tol=1e-10)(L[:, head]))
    layer = DoublyStochastic([0.3, 1.0, 4.0], learnable=True)
    other = DoublyStochastic([1.0] * 3, learnable=True)
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other(L), layer(L))
    torch.testing.assert_close(copy.deepcopy(layer)(L), layer(L))
    assert "0.3, 1, 4" in repr(layer)


def test_a_learnable_temperature_sharpens():
    layer, L = DoublyStochastic(2.0, learnable=True), torch.eye(4)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.3)
    for _ in range(20):
        loss = -layer(L).diagonal().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(layer.temperature.detach()) < 0.2


def test_iterations_are_the_literal_ones():
    L = logits(13, 2, 4, 4)
    P = L.exp()
    for _ in range(20):
        P = P / P.sum(-1, keepdim=True)
        P = P / P.sum(-2, keepdim=True)
    torch.testing.assert_close(DoublyStochastic(iterations=20)(L), P)
    assert sums_error(DoublyStochastic(iterations=20)(L)) > 1e-5 > sums_error(DoublyStochastic()(L))


def test_what_is_kept_for_the_gradient_does_not_grow_with_the_matrix():
    kept = []
    for n in (8, 16):
        L = logits(14, 100, n, n).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, L=L: kept.append((t is L or t.data_ptr() == L.data_ptr(), t)), lambda x: x
        ):
            DoublyStochastic()(L)
        own = [t.numel() for from_caller, t in kept if not from_caller]
        assert sum(own) <= 100 * 2 * n + 4 * n
        kept.clear()


@pytest.mark.parametrize("n", [4, 40])
def test_empty_batches_and_no_axes_in_front(n):
    assert DoublyStochastic()(torch.zeros(0, n, n)).shape == (0, n, n)
    assert DoublyStochastic()(torch.zeros(3, 0, 0)).shape == (3, 0, 0)
    L = logits(15, n, n)
    torch.testing.assert_close(DoublyStochastic()(L[None])[0], DoublyStochastic()(L))


def test_what_does_not_converge_is_said_and_finite():
    L = logits(16, 2, 3, 3).requires_grad_()
    blocked = torch.tensor([[1, 0, 0], [1, 0, 0], [1, 1, 1]]).bool()  # two rows want the same column
    with pytest.warns(RuntimeWarning, match=r"not converged: 2 of 2 problems, marginal error up to"):
        P = DoublyStochastic()(L, mask=blocked)
    P.square().sum().backward()
    assert P.isfinite().all()
    assert L.grad.isfinite().all()


L = torch.zeros(2, 3, 3)
NOBODY = torch.tensor([[True] * 3, [False] * 3])
ROW = torch.ones(3, 3, dtype=torch.bool)
ROW[1] = False
BAD = [
    (lambda: DoublyStochastic(0), "temperature must be a positive, finite number, got 0"),
    (lambda: DoublyStochastic([1.0, -1.0]), "temperature must be a positive, finite number, got -1.0"),
    (lambda: DoublyStochastic([]), "temperature must be a positive number, or one for each head, got none"),
    (lambda: DoublyStochastic(torch.tensor(1.0, requires_grad=True)), "temperature must not require a gradient here"),
    (lambda: DoublyStochastic(iterations=0), "iterations must be a whole number of at least 1, got 0"),
    (lambda: DoublyStochastic()(torch.zeros(3)), r"logits must be a tensor of floats of shape \(..., n, m\), got \(3,\)"),
    (lambda: DoublyStochastic()(L.long()), "logits must be a tensor of floats"),
    (lambda: DoublyStochastic()(torch.zeros(3, 4)), "logits of 3 × 4 have no default sums: give row sums a, column sums b"),
    (
        lambda: DoublyStochastic([1.0, 2.0, 3.0])(L),
        r"logits must have shape \(..., 3, n, m\), a matrix for each temperature",
    ),
    (
        lambda: DoublyStochastic()(L, row_mask=NOBODY),
        "problem 1: a must have a positive sum over the present entries, got all zeros",
    ),
    (lambda: DoublyStochastic()(L, row_mask=torch.tensor([True, True, False])), "must have equal totals, got 2 and 3"),
    (lambda: DoublyStochastic()(L, mask=ROW), "problem 0: row 1 has mass, but every entry of it is forbidden"),
    (lambda: DoublyStochastic()(L, mask=ROW.T), "problem 0: column 1 has mass, but every entry of it is forbidden"),
    (
        lambda: DoublyStochastic()(L, mask=ROW[:2]),
        r"mask must be a boolean tensor that broadcasts to \(2, 3, 3\), got \(2, 3\)",
    ),
    (lambda: DoublyStochastic()(L, mask=ROW.float()), "mask must be a boolean tensor"),
    (
        lambda: DoublyStochastic()(L, a=torch.ones(4)),
        r"a must be a tensor of floats that broadcasts to \(2, 3\), got \(4,\)",
    ),
    (lambda: DoublyStochastic()(L, a=-torch.ones(3)), "a must not be negative"),
    (lambda: DoublyStochastic()(L, a=torch.tensor([2.0, 2.0, -1.0])), "a must not be negative"),
    (lambda: DoublyStochastic()(L, torch.ones(3), torch.ones(3) * 2), "must have equal totals, got 3 and 6"),
    (lambda: DoublyStochastic()(L, a=torch.tensor([1.0, torch.nan, 1.0])), "a must be finite"),
    (lambda: DoublyStochastic()(L + torch.nan), r"logits must be finite, or -inf .*, got nan at \(0, 0\) of problem 0"),
    (lambda: DoublyStochastic()(L + torch.inf), r"logits must be finite, or -inf .*, got inf at \(0, 0\) of problem 0"),
    (lambda: DoublyStochastic()((L + 1e6).half()), "logits must be finite, or -inf .*, got inf"),
    (lambda: DoublyStochastic()(L[0] - torch.inf), "^row 0 has mass, but every entry of it is forbidden"),
    (
        lambda: DoublyStochastic(1e-280)(1e200 * torch.eye(3).double()[:, :1].expand(3, 3).mT.contiguous()),
        "temperature is too small: logits / temperature overflows",
    ),
    (lambda: DoublyStochastic()(L, mask=ROW.to("meta")), "mask must be on cpu, got meta"),
]


@pytest.mark.parametrize("iterations", [None, 5])
@pytest.mark.parametrize(("call", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_input_is_one_clear_line(call, message, iterations, monkeypatch):
    if iterations:
        before = DoublyStochastic.__init__
        monkeypatch.setattr(DoublyStochastic, "__init__", lambda self, *a, **k: before(self, *a, **({"iterations": 5} | k)))
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("size", [1e4, 1e9, 1e15, 1e30])
def test_huge_logits_are_finite_or_refused(n, size):
    import warnings

    x = logits(17, 2, n, n, scale=size).requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            P = DoublyStochastic(max_depth=200)(x)
        except ValueError as error:
            assert "raise the temperature" in str(error)  # noqa: PT017
            return
    P.square().sum().backward()
    assert P.isfinite().all()
    assert x.grad.isfinite().all()


def test_a_temperature_that_has_reached_0_is_said():
    layer = DoublyStochastic(learnable=True)
    for value, shown in ((-800.0, "0"), (800.0, "inf"), (math.nan, "nan")):
        with torch.no_grad():
            layer.log_temperature.fill_(value)
        with pytest.raises(ValueError, match=f"temperature must be a positive, finite number, got {shown}"):
            layer(torch.zeros(3, 3))


def test_a_side_of_which_nothing_is_there_is_named_where_the_other_has_weights():
    nobody = torch.zeros(3, dtype=torch.bool)
    for given, name in (({"b": torch.ones(3), "row_mask": nobody}, "a"), ({"a": torch.ones(3), "column_mask": nobody}, "b")):
        with pytest.raises(ValueError, match=f"{name} must have a positive sum over the present entries, got all zeros"):
            DoublyStochastic()(torch.zeros(3, 3), **given)
