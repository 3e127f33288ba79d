r"""Figures 3 and 4 as the author's notebooks run them: his points, start, sink, step and read-out.

His sink has the value −1/n and is updated like any token. With w = e^{v_sink/λ}, its weight in a row, and s = 1/n a layer is

    u_i ← u_i − γ t(S_i),      t(S) = (S − s w)/(S + w),      dt/d(log S) = (1 + s) S w/(S + w)² ≤ (1 + s)/4.

So in the coordinates (u, −v) its Jacobian is non-negative with rows of sum 1, and no layer takes two runs apart, for every

    γ ≤ 4λ/(1 + s),      2λ for the printed sink (s = 1), 4λ n/(n + 1) for his.

At the solution S = s w the slope is s/(1 + s), and a common shift of all u and v is multiplied by 1 − 2γs/((1 + s)λ): beyond
γ = λ(1 + s)/s, which is λ(n + 1) for his sink, the sums of the plan do not settle. Rows of attention do not see that shift,
and can converge a little longer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import pot_plan
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.network.schedule import Gradient
from otformer.network.transformer import AligningTransformer

N, REG, HIS_STEP, DEPTH = 6, 0.1, 0.05, 5000  # points, λ, γ, layers before the read-out
PERMUTED = (1, 2, 5, 4, 0, 3)  # 6 x: the permutation of his printed answer
PRINTED = (0.02491055, 0.165084, 0.33346675, 0.4998854, 0.66825816, 0.8084133)  # for it
DRAWN_STARTS = 5  # random starts of u and v
RATIOS = (0.5, 1.0, 2.0, 3.4, 5.0, 6.5, 7.5, 9.0)  # γ/λ; proved up to 24/7, locally unstable beyond 7
LAYERS_OF_HIS = (0, 1000, 5000)  # layers
STRIDE = 25  # layers from one point of the curves to the next


def run(context: Context) -> Outcome:
    x = torch.tensor(PERMUTED, dtype=torch.float64)[:, None] / N
    y = torch.arange(N, dtype=torch.float64)[:, None]
    target = pot_plan(((x - y.T) ** 2).T, REG)  # rows are y, as in his read-out
    generator = context.generator()
    u, v = (draw(DRAWN_STARTS, N, generator=generator, dtype=torch.float64) for draw in (torch.randn, torch.rand))
    layers = range(0, DEPTH + 1, STRIDE)
    errors: dict[float, Tensor] = {}  # γ/λ → largest |A − P*| [layers], over the starts
    sums: dict[float, float] = {}  # γ/λ → largest |n³ Σ_i P_ij − 1| at the end
    for ratio in context.each(RATIOS):
        net = AligningTransformer(1, REG, DEPTH, Gradient(ratio * REG), "token", marginals=False, sink_value="mean")
        trace = net(x.expand(DRAWN_STARTS, N, 1), y.expand(DRAWN_STARTS, N, 1), start=(u, v), keep=layers)
        errors[ratio] = torch.stack([(trace.attention(k, "columns") - target).abs().amax() for k in layers])
        sums[ratio] = float((trace.plan().sum(1) * N**3 - 1).abs().max())
        if ratio * REG == HIS_STEP:
            shown = {f"A at layer {k}": trace.attention(k, "columns")[0] for k in LAYERS_OF_HIS}
            answers = trace.attention(-1, "columns") @ x[:, 0]  # [DRAWN_STARTS, N]
    printed = torch.tensor(PRINTED, dtype=torch.float64)
    last = {ratio: float(path[-1]) for ratio, path in errors.items()}
    proved, limit = 4 * N / (N + 1), N + 1
    numbers: Numbers = {
        "error": last[HIS_STEP / REG],
        "printed": float((answers - printed).abs().max()),
        "cubed": sums[HIS_STEP / REG],
        "attention": [last[ratio] for ratio in RATIOS],
        "sums": [sums[ratio] for ratio in RATIOS],
        "proved": proved,
        "limit": limit,
    }
    checks = {
        "reached": numbers["printed"] < 2.5e-5,
        "cubed": sums[HIS_STEP / REG] < 1e-3,
        "proved": all(max(last[ratio], sums[ratio]) < 1e-3 for ratio in RATIOS if ratio <= proved),
        "unstable": all(sums[ratio] > 0.01 for ratio in RATIOS if ratio > limit),
    }
    rows: list[Row] = [
        {"layer": layer} | {f"γ = {ratio:g}λ: largest |A − P*|": float(path[k]) for ratio, path in errors.items()}
        for k, layer in enumerate(layers)
    ]
    settings = {"n": N, "reg": REG, "step": HIS_STEP, "depth": DEPTH, "starts": DRAWN_STARTS}
    return Outcome(rows, _draw({**shown, "P*, regularised plan": target}, errors, proved), numbers, checks, settings)


def _draw(shown: dict[str, Tensor], errors: dict[float, Tensor], proved: float) -> figures.Figure:
    fig, axes = figures.figure(10, 5.4, "abcd;eeee")
    for panel, (title, matrix) in zip("abcd", shown.items(), strict=True):
        image = figures.heatmap(axes[panel], matrix, title, 1.0)
        axes[panel].set(xlabel="x, point number", ylabel="y, point number" if panel == "a" else "")
    figures.colours(fig, image, axes["d"])
    curve = axes["e"]
    for (ratio, path), colour in zip(errors.items(), (*figures.CYCLE, "black"), strict=True):
        style = "-" if ratio <= proved else "--" if ratio <= N + 1 else ":"
        label = f"γ = {ratio:g}λ" + (", his" if ratio == HIS_STEP / REG else "")
        curve.semilogy(range(0, DEPTH + 1, STRIDE), path, style, color=colour, label=label, linewidth=1.6)
    curve.set(xlabel="layer", ylabel="largest |A − P*|", xlim=(0, DEPTH))
    curve.set_title(f"Converges by proof up to γ = {proved:.2f}λ (solid); the sums do not beyond {N + 1}λ (dotted)")
    curve.legend(loc="upper right", ncols=2)
    return fig
