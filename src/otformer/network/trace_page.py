"""A trace as one HTML page: a slider over layers, both heads' attention, the goal, the points, errors and registers.

After every layer attention is the softmax of (u_i + v_j − K_ij)/λ, over j for the head ``rows``, over i for ``columns``. So
the page holds K once, u and v of every layer it shows, and does the softmax itself, in float64.

The goal is the plan P*_λ of the prompt (goal.py).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.network.goal import costs, distances, goal
from otformer.network.trace_card import points_of, spread
from otformer.network.weights import HEADS
from otformer.show import look
from otformer.show.heat import checked_labels

if TYPE_CHECKING:
    from otformer.network.trace import Trace

LAYERS_SHOWN = 601  # most layers on a page
LARGEST_PAGE = 20_000_000  # bytes
ENTRIES_READ = 2**26  # of the plans that errors and distances are computed from, over all layers
COORDINATES = 4  # of a point, up to which the table of registers shows x and y
_BYTES = 4 / 3  # of base64 per byte


def write_trace_page(trace: Trace, path: str | Path, labels: Any = None, goals: Any = None) -> Path:
    """Write the page of a trace; it opens without a network. Returns its path. Written whole or not at all.

    labels : two lists of texts, for the n points x and the m points y; of a batch a list of such pairs.
    goals : the plan to compare with, [n, m], of a batch [B, n, m]; P*_λ if None.
    Shows at most 601 of the kept layers, closer together at the start where that are not all, and fewer of large problems.
    Of a batch, the first problems that fit (one at least). ValueError if the costs alone are too large for a page.
    """
    file, (n, m) = look.checked_page("path", path), trace.shape[-2:]
    batch = len(trace.prompt.a)
    texts, plans = _labels(trace, labels), _goals(trace, goals)
    _check_edits(trace)
    entry, layer = (8 + 4) * _BYTES * n * m, 8 * _BYTES * (n + m)
    if entry + 2 * layer > LARGEST_PAGE:
        raise ValueError(
            f"a page of this trace would be over {LARGEST_PAGE // 10**6} MB: the costs and the plan of {n} × {m} pairs take "
            f"{entry / 1e6:.0f} MB; trace a smaller problem"
        )
    fit = min(ENTRIES_READ // (n * m), int((LARGEST_PAGE - entry) / layer))
    layers = spread(trace.layers, max(2, min(LAYERS_SHOWN, fit)))
    shown = max(1, min(batch, int(LARGEST_PAGE / (entry + layer * len(layers)))))
    net, errors = trace.network, trace.marginal_errors(layers).reshape(len(layers), -1)
    data = {
        "layers": layers,
        "kept": len(trace),
        "depth": trace.depth,
        "reg": [float(net.reg[net.layer[min(each, net.depth - 1)]]) for each in layers],  # λ of what reads Z_layer
        "batch": batch,
        "registers": [name for name, place in net.registers.slices.items() if place.stop - place.start <= COORDINATES],
        "problems": [_problem(trace, layers, k, texts[k], plans[k], errors[:, k].tolist()) for k in range(shown)],
    }
    names = ("trace_page.html", "trace_page.js", "trace_picture.js")
    template, script, picture = (look.resource("network", name) for name in names)
    parts = {"LOOK": look.variables(), "SCRIPT": script, "PICTURE": picture, "DATA": look.script_json(data)}
    return look.write_page("path", file, look.filled(template, **parts))


def _check_edits(trace: Trace) -> None:
    """Raise ValueError if a register was edited that u and v are multiplied by: the page's softmax would be another."""
    prompt, net = trace.prompt, trace.network
    if prompt.original is None:
        return
    readings = [term for each in HEADS for term in net._head(each, 1.0).terms if {"u", "v"} & {*term.query, *term.key}]
    factors = {name for term in readings for name in (*term.query, *term.key)} - {"u", "v"}
    changed = [name for name in prompt.registers if name in factors and not torch.equal(prompt[name], prompt.original[name])]
    if changed:
        advice = "name a .svg, .pdf or .png"
        raise checks.ArgumentError("path", f"be a picture where {' and '.join(changed)} was edited", "a page", advice)


def _labels(trace: Trace, labels: Any) -> list[Any]:
    """Return the labels of every problem, or None for each."""
    *batch, n, m = trace.shape
    if labels is None or not batch:
        return [checked_labels(labels, (n, m))] * len(trace.prompt.a)
    if not isinstance(labels, Sequence) or isinstance(labels, str) or len(labels) != batch[0]:
        raise checks.ArgumentError("labels", f"be a list of {batch[0]} pairs of lists, one for each problem")
    shapes = zip(trace.prompt.x_present.sum(1).tolist(), trace.prompt.y_present.sum(1).tolist(), strict=True)
    return [checked_labels(each, shape) for each, shape in zip(labels, shapes, strict=True)]


def _goals(trace: Trace, goals: Any) -> list[Tensor | None]:
    """Return the plans that were given for the problems, [n, m] each, or None for each."""
    if goals is None:
        return [None] * len(trace.prompt.a)
    t = checks.tensor("goal", goals).detach().double().cpu()
    if tuple(t.shape) != trace.shape or bool((t < 0).any()):
        raise checks.ArgumentError("goal", f"be a plan of shape {trace.shape}, no number below 0", f"shape {tuple(t.shape)}")
    return list(t.reshape(-1, *t.shape[-2:]))


@torch.no_grad()
def _problem(
    trace: Trace, layers: list[int], k: int, labels: Any, given: Tensor | None, errors: list[float]
) -> dict[str, Any]:
    """Collect what the page shows of problem k, without absent points."""
    prompt, registers = trace.prompt, trace.network.registers
    x, y = prompt.x_present[k].cpu(), prompt.y_present[k].cpu()
    found = goal(trace, k) if given is None else given
    P = None if found is None else found.cpu()[x][:, y]
    u, v = (t.reshape(len(trace), -1, t.shape[-1])[:, k].double().cpu() for t in trace.all_potentials())
    places = [trace.layers.index(each) for each in layers]
    points = points_of(trace, k)
    Z, duals = prompt.Z[k].double().cpu(), [registers.column(name) for name in "uv"]
    tokens = [i for i in range(prompt.tokens) if (i < len(x) and x[i]) or (i < len(y) and y[i])]
    shown = [each for each in registers.slices.values() if each.stop - each.start <= COORDINATES]
    return {
        "n": int(x.sum()),
        "m": int(y.sum()),
        "K": _pack(costs(trace.network, prompt, k).cpu()[x][:, y], "<f8"),
        "u": _pack(u[places][:, x], "<f8"),
        "v": _pack(v[places][:, y], "<f8"),
        "goal": None if P is None else _pack(P, "<f4"),
        "error": [_number(each) for each in errors],
        "distance": None if found is None else [_number(each) for each in distances(trace, layers, k, found)],
        "points": None if points is None else [[[_number(c) for c in row] for row in side.tolist()] for side in points],
        "labels": None if labels is None else [_present(side, at) for side, at in zip(labels, (x, y), strict=True)],
        "at": [x.nonzero()[:, 0].tolist(), y.nonzero()[:, 0].tolist()],
        "tokens": tokens,
        "Z": [[[_number(c) for c in Z[i, each].tolist()] for each in shown] for i in (*tokens, prompt.tokens)],
        "sink": [[_number(c) for c in trace._Z(each)[k, -1, duals].tolist()] for each in layers],
    }


def _present(side: list[str], present: Tensor) -> list[str]:
    """Return the labels of the present points; labels were given for these alone, or for all."""
    return side if len(side) == int(present.sum()) else [side[i] for i in present.nonzero()[:, 0].tolist()]


def _pack(t: Tensor, kind: str) -> str:
    """Encode numbers as little-endian bytes in base64."""
    return base64.b64encode(np.ascontiguousarray(t.numpy()).astype(kind).tobytes()).decode("ascii")


def _number(value: float) -> float | None:
    """Round to seven significant digits; None (null) for what JSON cannot say."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
