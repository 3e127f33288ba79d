"""A trace as one HTML page: a slider over layers, both heads' attention, the marginal error, u and v.

Numbers travel inside the page: attention as 16-bit whole numbers (attention = k/65535, so to 8e-6), everything else as JSON.
"""

from __future__ import annotations

import base64
import json
import math
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from otformer.files import written
from otformer.network.weights import HEADS

if TYPE_CHECKING:
    from otformer.network.trace import Trace

LAYERS_SHOWN = 60  # most layers on a page
LARGEST_PAGE = 20_000_000  # bytes
TOP = 65535  # the whole number that stands for attention 1
_BYTES = 2 * 4 / 3  # bytes of base64 per number of 16 bits


def write_trace_page(trace: Trace, path: str | Path) -> Path:
    """Write the page of a trace; it opens without a network. Returns its path. Written whole or not at all.

    Shows at most 60 of the kept layers, closer together at the start, and fewer if the page would be over 20 MB. Of a
    batch, the first problems that fit at that number of layers (one at least). ValueError if two layers are too large.
    """
    n, m = trace.shape[-2:]
    layer_bytes = 2 * n * m * _BYTES
    layers = _spread(trace.layers, min(LAYERS_SHOWN, int(LARGEST_PAGE / layer_bytes)))
    if len(layers) < min(2, len(trace.layers)):
        raise ValueError(
            f"a page of this trace would be over {LARGEST_PAGE // 10**6} MB: two layers of {n} × {m} attention take "
            f"{2 * layer_bytes / 1e6:.0f} MB; trace a smaller problem"
        )
    batch, net = len(trace.prompt.a), trace.network
    shown = max(1, min(batch, int(LARGEST_PAGE / (layer_bytes * len(layers)))))
    data = {
        "layers": layers,
        "depth": trace.depth,
        "reg": [float(net.reg[net.layer[min(layer, net.depth - 1)]]) for layer in layers],  # λ of what reads Z_layer
        "batch": batch,
        "top": TOP,
        "problems": _problems(trace, layers, shown),
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    template = files("otformer.network").joinpath("trace_page.html").read_text(encoding="utf-8")
    with written(Path(path)) as out:
        out.write(template.replace("/*DATA*/null", text).encode())
    return Path(path)


def _spread(kept: list[int], count: int) -> list[int]:
    """At most ``count`` of the kept layers, first and last among them, closer together at the start.

    >>> _spread(list(range(101)), 6)
    [0, 4, 16, 36, 64, 100]
    """
    if len(kept) <= count:
        return kept
    last = len(kept) - 1
    return [kept[k] for k in sorted({round(last * (i / (count - 1)) ** 2) for i in range(count)})] if count > 1 else []


def _problems(trace: Trace, layers: list[int], count: int) -> list[dict[str, Any]]:
    """What the page shows of each of the first problems, absent points left out."""

    def batched(t: Tensor) -> Tensor:
        t = t.detach().cpu()
        return t if trace.prompt.batched else t[None]

    present = [(trace.prompt.x_present[k].cpu(), trace.prompt.y_present[k].cpu()) for k in range(count)]
    problems: list[dict[str, Any]] = [
        {"n": int(x.sum()), "m": int(y.sum()), "rows": [], "columns": [], "u": [], "v": [], "error": []} for x, y in present
    ]
    for layer in layers:
        rows, columns = (batched(trace.attention(layer, head)) for head in HEADS)
        u, v = (batched(each) for each in trace.potentials(layer))
        error = batched(trace.marginal_errors([layer])[0])
        for k, ((x, y), problem) in enumerate(zip(present, problems, strict=True)):
            problem["rows"].append(_pack(rows[k][x][:, y]))
            problem["columns"].append(_pack(columns[k][y][:, x]))
            problem["u"].append([_number(value) for value in u[k][x].tolist()])
            problem["v"].append([_number(value) for value in v[k][y].tolist()])
            problem["error"].append(_number(float(error[k])))
    return problems


def _pack(A: Tensor) -> str:
    """Entries in [0, 1] as little-endian 16-bit whole numbers, base64."""
    whole = (A.double() * TOP).round().clamp(0, TOP).to(torch.int32).numpy()
    return base64.b64encode(whole.astype("<u2").tobytes()).decode("ascii")


def _number(value: float) -> float | None:
    """Seven significant digits; None (null) for what JSON cannot say."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
