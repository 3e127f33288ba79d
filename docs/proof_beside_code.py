"""The proof beside the code, line by line, with the numbers of one layer; ``python docs/proof_beside_code.py`` writes it.

Every step has its formula and where it is proved on the left, and on the right the line of code that does it and what it
gives for token 1 in one layer of a network on three points. The numbers are computed here, from the matrices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import otformer as of
from otformer.network.transformer import AligningTransformer

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "proof-beside-code.md"
X, Y, REG, LAYER = [[0.6], [0.4], [0.5]], [[0.0], [0.5], [1.0]], 0.1, 3
NETWORK = "src/otformer/network/"


class Run(NamedTuple):
    """One layer of the run: the network, the tokens that the layer reads and writes, and both heads' logits."""

    net: AligningTransformer
    Z: Tensor  # [T+1, width]
    after: Tensor
    logits: Tensor  # [2, T+1, T+1]

    def register(self, name: str, token: int) -> float:
        return float(self.Z[token, self.net.registers.column(name)])


class Step(NamedTuple):
    """What is proved, and where; the first line of code that does it, and what it gives."""

    title: str
    formula: str
    proved: str
    file: str
    code: str
    gives: Callable[[Run], str]


def run() -> Run:
    net = of.AligningTransformer(dim=1, reg=REG, depth=600)
    trace = net(X, Y)
    Z, after = trace.Z(LAYER), trace.Z(LAYER + 1)
    return Run(net, Z, after, net.logits(Z[None], LAYER)[0])


def _token(r: Run) -> str:
    names = [name for name in r.net.registers if name not in ("spare", "log_a", "log_b")]
    return ", ".join(f"{name} {r.register(name, 0):.4g}" for name in names)


def _products(r: Run) -> str:
    parts = []
    for term in r.net._head("rows", REG).terms:
        query, key = (r.Z @ term.matrix(reading, r.net.registers) for reading in (term.query, term.key))
        parts.append(float(query[0] @ key[1]))
    return " + ".join(f"({part:.4f})" for part in parts) + f" = {sum(parts):.4f}"


def _mass(r: Run) -> float:
    return float(r.logits[0, 0, :-1].exp().sum())


def _softmax(r: Run) -> str:
    A = torch.softmax(r.logits[0, 0], dim=-1)
    return f"S_1 = {_mass(r):.4f}; weights {', '.join(f'{t:.4f}' for t in A[:-1])}, sink {A[-1]:.4f}"


def _value(r: Run) -> str:
    A, S = torch.softmax(r.logits[0, 0], dim=-1), _mass(r)
    t = float(A @ r.Z[:, r.net.registers.column("sign")])
    tanh = math.tanh(math.log(S) / 2)
    return f"{t:.6f}; (S − 1)/(S + 1) = {(S - 1) / (S + 1):.6f}; tanh(½ log S) = {tanh:.6f}"


def _written(r: Run) -> str:
    before, after = r.register("u", 0), float(r.after[0, r.net.registers.column("u")])
    return f"u_1: {before:.6f} → {after:.6f}, a change of {after - before:.6f}"


def _gradient(r: Run) -> str:
    S = _mass(r)
    return f"−γ/(S + a) · (S − a) = {-REG / (S + 1) * (S - 1):.6f}"


def _dual(r: Run) -> str:
    before, after = (_dual_of(Z, r) for Z in (r.Z, r.after))
    return f"L: {before:.6f} → {after:.6f}"


def _dual_of(Z: Tensor, r: Run) -> float:
    u, v = (Z[:-1, r.net.registers.column(name)] for name in ("u", "v"))
    return float(REG * r.net.logits(Z[None], LAYER)[0, 0, :-1, :-1].exp().sum() - u.sum() - v.sum())


def _distance(r: Run) -> str:
    end = r.net(X, Y).Z(600)
    u, v = (r.net.registers.column(name) for name in ("u", "v"))

    def osc(Z: Tensor, column: int) -> float:
        e = (Z - end)[:-1, column] / REG
        return float(e.max() - e.min())

    before, after = (max(osc(Z, u), osc(Z, v)) for Z in (r.Z, r.after))
    return f"μ: {before:.4e} → {after:.4e}, a factor of {after / before:.4f}"


PAGE_TEXT = """# The proof beside the code

Each row is one step of the argument. On the left are its formula and the places of its proof, on paper and in Coq. On the
right are the line of code that computes it and its value in one layer of one network.

The network has λ = {reg} and the schedule `gradient`, so both heads act with γ = λ. The points are x = 0.6, 0.4, 0.5
and y = 0, 0.5, 1, with weights 1. The numbers are those of layer {layer}: the head `rows`, token 1, and for a pair
token 2. `python docs/proof_beside_code.py` computes them from the matrices and writes this page.

| the proof | the code, and layer {layer} |
|---|---|
{rows}

The head `columns` is the same with x, u, a replaced by y, v, b (Coq: `cols_head_transposed`, `Dual.v`).
[Proofs](../proofs/README.md) lists what Coq does not check. Tests and the numbers above check that these matrices
compute the layer.
"""

STEPS = (
    Step(
        "The prompt is a table of registers.",
        "token i = (x_i, y_i, ‖x_i‖², ‖y_i‖², 1, 1, 1, +1, u_i, v_i); the sink has sign −1 and zeros",
        "definition; [erratum 4](errata.md#erratum-4) (the sink is frozen)",
        NETWORK + "prompt.py",
        "def tokens(f:",
        _token,
    ),
    Step(
        "A logit is a sum of products of registers.",
        "log M_ij = 2 x_i·y_j/λ − ‖y_j‖²/λ − ‖x_i‖²/λ + u_i/λ − 1 + v_j/λ",
        "[theory 0](theory.md#0-setting); Coq `plan` (`Layer.v`)",
        NETWORK + "weights.py",
        "terms = [",
        _products,
    ),
    Step(
        "The products are one matrix.",
        "logits = Z W_Q W_Kᵀ Zᵀ",
        "[weights.py](../src/otformer/network/weights.py), the table of products",
        NETWORK + "transformer.py",
        "return (Z @ self.W_Q[k]",
        lambda r: (
            f"logit(1, 2) = {float(r.logits[0, 0, 1]):.4f}; towards the sink {float(r.logits[0, 0, -1]):.4f} = log a_1"
        ),
    ),
    Step(
        "Softmax divides by S_i + a_i.",
        "A_ij = M_ij/(S_i + a_i), and a_i/(S_i + a_i) at the sink, where S_i = Σ_j M_ij",
        "[theory 0](theory.md#0-setting)",
        NETWORK + "transformer.py",
        "A = torch.softmax(",
        _softmax,
    ),
    Step(
        "The value ±1 turns the share into a tanh.",
        "(S_i − a_i)/(S_i + a_i) = tanh(½ log(S_i/a_i))",
        "[theory 1](theory.md#1-the-tanh-identity); Coq `tanh_exp` (`Tanh.v`)",
        NETWORK + "weights.py",
        'value="sign"',
        _value,
    ),
    Step(
        "The layer adds −γ times this tanh to u.",
        "u_i ← u_i − γ (S_i − a_i)/(S_i + a_i)",
        "theorem 3.1 of the paper; Coq `rows_head` (`Layer.v`); [erratum 1](errata.md#erratum-1) (the sign)",
        NETWORK + "transformer.py",
        "update = (A @",
        _written,
    ),
    Step(
        "That is a step of gradient descent.",
        "u ← u − D ∇_u L with D_ii = γ/(S_i + a_i) and ∂L/∂u_i = S_i − a_i",
        "[theory 0](theory.md#0-setting); Coq `rows_head` (`Layer.v`)",
        "src/otformer/transport/reference.py",
        "def gradient_descent(",
        _gradient,
    ),
    Step(
        "The dual falls.",
        "L(u⁺, v⁺) ≤ L(u, v), for steps up to 1.884013λ",
        "[theory 5](theory.md#5-alternating-heads-l-falls-in-every-layer-for-_c-and-the-layers-converge); "
        "Coq `both_heads_lower_by_the_residual` (`Dual.v`)",
        NETWORK + "transformer.py",
        "return Z + update",
        _dual,
    ),
    Step(
        "The distance to the plan shrinks by a factor.",
        "μ⁺ ≤ (1 − g(1 − τ²)(1 − η)) μ",
        "[theorem L.1](theorems.md#l-a-linear-rate-from-any-start); Coq `hilbert_rate` (`HilbertRate.v`)",
        "src/otformer/theory/linear_rate.py",
        "def contraction(",
        _distance,
    ),
)


def line_of(step: Step) -> int:
    """The line of the file on which the code begins, counted from 1."""
    lines = (ROOT / step.file).read_text("utf-8").splitlines()
    return next(k for k, line in enumerate(lines, 1) if step.code in line)


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def row(number: int, step: Step, r: Run) -> str:
    source = (ROOT / step.file).read_text("utf-8").splitlines()[line_of(step) - 1].split("  #")[0].strip()
    source = re.sub(r"^(def \w+)\(.*", r"\1(…)", source)
    left = f"**{number}. {step.title}** {step.formula}.<br>{step.proved}"
    right = f"[{Path(step.file).name}:{line_of(step)}](../{step.file}) `{source}`<br>{step.gives(r)}"
    return f"| {cell(left)} | {cell(right)} |"


def page() -> str:
    r = run()
    rows = [row(number, step, r) for number, step in enumerate(STEPS, 1)]
    return PAGE_TEXT.format(reg=REG, layer=LAYER, rows="\n".join(rows))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
