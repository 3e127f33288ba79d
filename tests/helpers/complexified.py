"""Networks run on complex points: the same weights, softmax as a quotient of sums of exponentials. For theorem X.

Each takes the points x = y = (s, 0, …, 0) for many complex s at once and returns P_11 of the output attention, [S].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from otformer import AligningTransformer
from otformer.learning.model import LearningTransformer

Array = np.ndarray


def around(center: complex, radius: float, count: int, start: float = 0.0) -> Array:
    """A circle once around, its first point again at the end; [count + 1]."""
    return center + radius * np.exp(1j * (start + 2 * np.pi * np.arange(count + 1) / count))


def softmax(t: Array) -> Array:
    powers = np.exp(t - t.real.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def corner(s: Array, n: int) -> Array:
    """The points, [S, n, 1]."""
    x = np.zeros((len(s), n, 1), complex)
    x[:, 0, 0] = s
    return x


def transposed(t: Array) -> Array:
    return np.swapaxes(t, -1, -2)


def constructed(net: AligningTransformer, n: int, s: Array) -> Array:
    """The frozen network by its matrices, Z ← Z + Σ softmax(Z W_Q W_Kᵀ Zᵀ) Z W_V W_O, the sink frozen."""
    x, r = corner(s, n), net.registers
    Z = np.repeat(net.prompt([[0.0]] * n, [[0.0]] * n).Z.double().numpy().astype(complex), len(s), axis=0)
    for name in ("x", "y"):
        Z[:, :n, r[name]] = x
        Z[:, :n, r[f"{name}_sq"]] = x**2
    Q, K, V, O = (t.double().numpy() for t in (net.W_Q, net.W_K, net.W_V, net.W_O))
    for k in net.layer.tolist():
        update = sum(softmax(Z @ Q[k, h] @ transposed(Z @ K[k, h])) @ Z @ V[k, h] @ O[k, h] for h in (0, 1))
        update[:, -1] = 0
        Z = Z + update
    last = net.layer[-1]
    rows = Z @ Q[last, 0] @ transposed(Z @ K[last, 0])
    return softmax(rows[:, :-1, :-1])[:, 0, 0]


def learned(net: LearningTransformer, n: int, s: Array) -> Array:
    """The trainable network on the plain prompt [x, y, 0]."""
    x = corner(s, n)
    Z = np.concatenate([x, x, np.zeros_like(x)], -1)
    for P, V in net.weights():
        w = P.shape[1]
        heads = [softmax(Z @ P[0, :, h * w : h * w + w].numpy() @ transposed(Z)) @ Z for h in (0, 1)]
        Z = Z + np.concatenate(heads, -1) @ V[0].numpy()
    return softmax(Z @ net.P_out[0].numpy() @ transposed(Z))[:, 0, 0]


def drawn(random: np.random.Generator, n: int, width: int = 5) -> Callable[[Array], Array]:
    """One or two layers of two heads and a tanh feed-forward part, and an output head, all with random weights."""

    def matrix(shape: tuple[int, int]) -> Array:
        return random.standard_normal(shape) / np.sqrt(width)

    shapes = [(width, width)] * 4 + [(width, 8), (8, width)]  # P and V of two heads, up, down
    layers = [[matrix(shape) for shape in shapes] for _ in range(int(random.integers(1, 3)))]
    out = matrix((width, width))

    def network(s: Array) -> Array:
        x = corner(s, n)
        Z = np.concatenate([x, x**2, np.ones_like(x), np.zeros((*x.shape[:2], width - 3))], -1)
        for P, V, other, written, up, down in layers:
            Z = Z + softmax(Z @ P @ transposed(Z)) @ Z @ V + softmax(Z @ other @ transposed(Z)) @ Z @ written
            Z = Z + np.tanh(Z @ up) @ down
        return softmax(Z @ out @ transposed(Z))[:, 0, 0]

    return network
