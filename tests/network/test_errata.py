"""Errata of the construction (docs/errata.md, by number): each fails as printed and passes corrected.

The claims are in test_errata_of_claims.py, the convergence proof in tests/theory/test_errata_of_theory.py and
test_errata_of_steps.py.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from oracles import uniform
from otformer import AligningTransformer
from otformer.network import printed
from otformer.network.features import squared_euclidean
from otformer.network.prompt import engineered
from otformer.network.registers import Registers
from otformer.network.schedule import Gradient
from otformer.network.weights import HEADS, head
from otformer.theory import hilbert
from otformer.transport import reference


def points(n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """x, y [n, d] and C_ij = ‖x_i − y_j‖²."""
    x, y = uniform(seed, 2, n, d)
    return x, y, torch.cdist(x, y) ** 2


def state(x: Tensor, y: Tensor, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """The prompt with random u, v in its memory, sink row last: Z, u, v."""
    registers = Registers(x.shape[1], marginals=False)
    Z, (u, v) = engineered(squared_euclidean(x, y), registers).Z[0].clone(), uniform(seed, 2, len(x))
    Z[:-1, registers.column("u")], Z[:-1, registers.column("v")] = u, v
    return Z, u, v


def tables(dim: int, reg: float) -> tuple[Tensor, Tensor]:
    """P^(1) and P^(2) with errata 2 and 3 corrected."""
    return printed.printed_rows(dim, reg, misprint=False), printed.printed_columns(dim, reg, misprint=False)


def test_01_the_sign_of_B() -> None:
    x, y, C = points(4, 2)
    reg = 0.5
    Z = engineered(squared_euclidean(x, y), Registers(2, marginals=False)).Z[0]
    r = Registers(2, marginals=False)

    def dual(Z: Tensor) -> float:
        return float(reference.dual(C, Z[:-1, r.column("u")], Z[:-1, r.column("v")], reg))

    assert dual(printed.printed_layer(Z, tables(2, reg), +0.1)) > dual(Z)
    down = printed.printed_layer(Z, tables(2, reg), -0.1)
    assert dual(down) < dual(Z)
    u, v = list(itertools.islice(reference.gradient_descent(C, reg, 0.1), 2))[1]
    assert torch.allclose(down[:-1, r.column("u")], u, atol=1e-14)
    assert torch.allclose(down[:-1, r.column("v")], v, atol=1e-14)


@pytest.mark.parametrize("dim", [2, 3, 4])
def test_02_the_entry_for_v_in_the_first_head(dim: int) -> None:
    x, y, C = points(4, dim)
    reg = 0.5
    Z, u, v = state(x, y)
    expected = (u[:, None] + v - C) / reg - 1
    wrong = (Z @ printed.printed_rows(dim, reg) @ Z.T)[:-1, :-1]
    right = Z @ tables(dim, reg)[0] @ Z.T
    assert (wrong - expected).abs().max() > 0.1
    in_place_of_one = {2: u, 3: v, 4: torch.zeros_like(u)}[dim]  # the register that e_{2d+5} reads: u, v, spare
    assert torch.allclose(wrong, expected + (in_place_of_one - 1)[:, None] * v / reg, atol=1e-12)
    assert torch.allclose(right[:-1, :-1], expected, atol=1e-12)


def test_02_out_of_range_from_d_5_and_harmless_for_d_1() -> None:
    with pytest.raises(ValueError, match="unit vector e_15 of length 14"):
        printed.printed_rows(5, 0.5)
    Z, _, _ = state(*points(4, 1)[:2])
    wrong, right = Z @ printed.printed_rows(1, 0.5) @ Z.T, Z @ tables(1, 0.5)[0] @ Z.T
    assert torch.allclose(wrong[:-1], right[:-1], atol=1e-12)  # it reads sign, which is 1 on every token
    assert not torch.allclose(wrong[-1], right[-1], atol=1e-2)  # and −1 on the sink: only a frozen sink does not mind


def test_03_the_second_head() -> None:
    x, y, C = points(4, 1)
    reg = 0.5
    Z, u, v = state(x, y)
    expected = ((u[:, None] + v - C) / reg - 1).T
    assert ((Z @ printed.printed_columns(1, reg) @ Z.T)[:-1, :-1] - expected).abs().max() > 0.1
    assert torch.allclose((Z @ tables(1, reg)[1] @ Z.T)[:-1, :-1], expected, atol=1e-12)
    with pytest.raises(ValueError, match="no such column for d = 2"):
        printed.printed_columns(2, reg)


def test_03_the_corrected_tables_are_the_networks_heads() -> None:
    for dim in (1, 2, 5):
        registers = Registers(dim, marginals=False)
        for name, table in zip(HEADS, tables(dim, 0.3), strict=True):
            assert torch.allclose(head(name, 0.3, registers).bilinear(registers), table, atol=1e-14)


@pytest.mark.slow
def test_04_the_sink_row_is_not_harmless() -> None:
    reg = 0.1
    x, y, C = points(6, 2)
    descent = list(itertools.islice(reference.gradient_descent(C, reg, reg), 401))
    gaps = {}
    for sink in ("token", "frozen"):
        trace = AligningTransformer(2, reg, 400, Gradient(), sink)(x, y)  # type: ignore[arg-type]
        gaps[sink] = [float((trace.potentials(k)[0] - descent[k][0]).abs().max()) for k in range(401)]
        assert torch.allclose(trace.attention(), reference.plan(C, *reference.sinkhorn(C, reg), reg), atol=1e-6)
    assert max(gaps["token"][:2]) < 1e-14  # equal up to the first layer
    assert max(gaps["token"]) > 0.05  # and no longer from the second on
    assert max(gaps["frozen"]) < 1e-12


def test_05_orientation() -> None:
    reg = 0.2
    x, y, C = points(5, 2)
    attention = AligningTransformer(2, reg, 600)(x, y).attention()
    as_printed = torch.cdist(y, x) ** 2  # C_ij = ‖y_i − x_j‖²
    plans = [reference.plan(M, *reference.sinkhorn(M, reg), reg) for M in (as_printed, C)]
    assert (attention - plans[0]).abs().max() > 0.1
    assert torch.allclose(attention, plans[1], atol=1e-8)
    second = AligningTransformer(2, reg, 600)(x, y).attention(head="columns")  # or keep C, and read the second head
    assert torch.allclose(second, plans[0], atol=1e-8)


def test_06_layer_index() -> None:
    reg = 0.2
    x, y, C = points(5, 2)
    trace = AligningTransformer(2, reg, 10)(x, y, warn=False)
    u = [each for each, _ in itertools.islice(reference.gradient_descent(C, reg, reg), 12)]
    for layer in range(11):
        found = trace.potentials(layer)[0]
        assert torch.allclose(found, u[layer], atol=1e-13)
        assert not torch.allclose(found, u[layer + 1], atol=1e-4)  # u_ℓ − D∇L, as printed


def test_07_the_sinks_output() -> None:
    step, r = 0.05, Registers(2)
    net = AligningTransformer(2, 0.2, 1, Gradient(step), sink="token")
    for n in (2, 6, 30):  # printed: n − 1. Softmax divides by n + 1, and the value goes through −γ
        sink = net(*points(n, 2)[:2]).Z(1)[-1]
        for name in ("u", "v"):
            assert float(sink[r.column(name)]) == pytest.approx(-step * (n - 1) / (n + 1), abs=1e-15)


def test_16_attention_is_normalised_and_M_is_not() -> None:
    reg = 0.2
    x, y, C = points(5, 2)
    trace = AligningTransformer(2, reg, 3)(x, y, warn=False)
    M = reference.plan(C, *trace.potentials(3), reg)
    A, rows = trace.attention(3), M.sum(1, keepdim=True)
    assert (M - A).abs().max() > 0.05  # A^(ℓ) as defined is not exp(H), as the convergence analysis has it
    assert torch.allclose(A, M / rows, atol=1e-13)
    assert torch.allclose(trace.plan(3), M, atol=1e-13)


def test_17_K_and_Q() -> None:
    """⟨K z_i, Q z_j⟩ is z_iᵀ KᵀQ z_j: with P = K Qᵀ it must read ⟨Kᵀ z_i, Qᵀ z_j⟩."""
    K, Q, Z = uniform(0, 4, 4), uniform(1, 4, 4), uniform(2, 3, 4)
    products = torch.stack([torch.stack([(K @ zi) @ (Q @ zj) for zj in Z]) for zi in Z])
    corrected = torch.stack([torch.stack([(K.T @ zi) @ (Q.T @ zj) for zj in Z]) for zi in Z])
    logits = Z @ (K @ Q.T) @ Z.T
    assert not torch.allclose(products, logits, atol=0.1)
    assert torch.allclose(corrected, logits)
    assert not torch.allclose(Z @ (K @ Q) @ Z.T, logits, atol=0.1)  # "P = K Q" of appendix A


def test_18_the_step_sizes_are_inverted() -> None:
    """(γ D)⁻¹ = S + 1 means D = 1/(γ(S+1)); the network does, and the proof uses, D = γ/(S+1)."""
    reg, step = 0.2, 0.05
    x, y, C = points(5, 2)
    moved = AligningTransformer(2, reg, 1, Gradient(step))(x, y, warn=False).potentials(1)[0]
    S = (-C / reg - 1).exp().sum(1)
    assert torch.allclose(moved, -step / (S + 1) * (S - 1), atol=1e-14)
    assert not torch.allclose(moved, -1 / (step * (S + 1)) * (S - 1), rtol=0.5)


def test_23_indices_of_the_duals() -> None:
    reg, (_, _, C) = 0.2, points(4, 2)
    u, v = reference.sinkhorn(C, reg)
    assert hilbert.doubly_stochastic_gap(reference.plan(C, v, u, reg)) > 0.1  # v_i* + u_j*, as printed
    assert hilbert.doubly_stochastic_gap(reference.plan(C, u, v, reg)) < 1e-12


def test_the_complete_print() -> None:
    """The network with every misprint at once, then corrected one by one; d = 1, n = 5, λ = γ = 0.5."""
    reg, (x, y, C) = 0.5, points(5, 1)
    r, P = Registers(1, marginals=False), reference.plan(C, *reference.sinkhorn(C, reg), reg)
    table = printed.printed_rows(1, reg, misprint=False)  # on tokens the misprint does not show (erratum 2)

    def run(*corrected: int) -> tuple[list[float], list[float]]:
        """L and the largest error of the attention over tokens, after 0 to 400 layers."""
        duals, errors = [], []
        for Z in itertools.islice(printed.printed_network(x, y, reg, reg, corrected), 401):
            duals.append(float(reference.dual(C, Z[:-1, r.column("u")], Z[:-1, r.column("v")], reg)))
            errors.append(float((torch.softmax((Z @ table @ Z.T)[:-1, :-1], 1) - P).abs().max()))
        return duals, errors

    duals, errors = run()
    assert all(later > earlier for earlier, later in itertools.pairwise(duals[:11]))  # L is climbed from the first layer
    assert duals[1] == pytest.approx(7.32, abs=0.01)
    assert duals[10] > 1e7
    assert duals[-1] == math.inf
    assert errors[-1] > 0.2
    assert run(1)[1][-1] > 0.2  # B corrected: the second head is still wrong
    assert 1e-5 < run(1, 3)[1][-1] < 1e-3  # and the second head: the sink, which reads P^(1) with the sign −1, runs away
    duals, errors = run(1, 2, 3)
    assert errors[-1] < 1e-14  # the attention is right,
    assert duals[-1] > duals[1] + 1  # the duals are not: they minimise another L (erratum 4)
    duals, errors = run(1, 2, 3, 4)
    assert errors[-1] < 1e-14
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(duals))
    descent = [
        float(reference.dual(C, u, v, reg)) for u, v in itertools.islice(reference.gradient_descent(C, reg, reg), 401)
    ]
    assert duals == pytest.approx(descent, abs=1e-12)


def test_the_complete_print_refuses_what_it_cannot_run() -> None:
    x, y, _ = points(3, 2)
    with pytest.raises(ValueError, match="no such column for d = 2"):
        printed.printed_network(x, y, 0.5, 0.5)
    with pytest.raises(ValueError, match="corrected must hold errata from 1 to 4, got 5"):
        printed.printed_network(x, y, 0.5, 0.5, (1, 5))
    with pytest.raises(ValueError, match="step must be"):
        printed.printed_network(x, y, 0.5, 0.0, (3,))
