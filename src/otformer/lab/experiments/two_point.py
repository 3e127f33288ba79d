"""The two-point list x = (0, 1), y = (½, 3/2): 1/k for Sinkhorn and for layers of one λ, not for annealed ones."""

from __future__ import annotations

import math

from otformer import figures
from otformer.lab.experiments.experiment import Context, Outcome, Row
from otformer.network.schedule import Alternating, Annealed, Gradient, Relaxed, Schedule
from otformer.theory import two_point

REGS, DEPTH = (0.05, 0.02), 20_000  # values of λ, and layers at most
CURVES: dict[str, Schedule] = {
    "gradient": Gradient(),
    "alternating": Alternating(),
    "relaxed, climbing to 1.8": Relaxed(),
    "relaxed, ω = 1.8": Relaxed(1.8),
    "relaxed, ω = 1.95": Relaxed(1.95),
}
HALF_STEPS, ONE_A_DEPTH, PROVED = "Sinkhorn, half-steps", "annealed, one network per depth", "annealed, proved (theorem E)"
COVERED = {"gradient": 1, "alternating": 2}  # steps over λ: the lower bound is proved for steps up to 2λ
GAMMA = {1: "λ", 2: "2λ"}
LIMITS = {"gradient": 4.0, "alternating": 2.0, "relaxed, climbing to 1.8": 2.0, "relaxed, ω = 1.8": 2.0, HALF_STEPS: 2.0}
DEPTHS = (72, 108, 144, 216, 288, 432, 576)  # of annealed networks
TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)  # errors for which theorem E has a network, each of another depth
MARGINAL_ERROR = "marginal error"
Curve = dict[int, float]  # layers -> marginal error


def run(context: Context) -> Outcome:
    found = {reg: curves(reg) for reg in context.each(REGS)}
    rows: list[Row] = [
        {"λ": reg, "schedule": name, "layers": k, MARGINAL_ERROR: error, "error × layers": k * error}
        for reg, each in found.items()
        for name, curve in each.items()
        for k, error in curve.items()
        if k
    ]
    last = {(reg, name): DEPTH * found[reg][name][DEPTH] for reg in REGS for name in LIMITS}
    checks = {
        f"error × layers is within 2 % of {limit:g} at layer {DEPTH:,}: {name}": all(
            abs(last[reg, name] / limit - 1) < 0.02 for reg in REGS
        )
        for name, limit in LIMITS.items()
    }
    checks["theorem D: the error of gradient and alternating is above the lower bound in every layer shown"] = all(
        error >= two_point.error_bound(reg, k, step * reg)
        for reg in REGS
        for name, step in COVERED.items()
        for k, error in found[reg][name].items()
    )
    checks["theorem E: its network has at most the error that it was built for"] = all(
        error <= tol for reg in REGS for error, tol in zip(found[reg][PROVED].values(), TOLERANCES, strict=True)
    )
    checks["annealed at 576 layers is 100 times nearer than alternating at 576"] = all(
        100 * found[reg][ONE_A_DEPTH][576] < found[reg]["alternating"][576] for reg in REGS
    )
    settings = {"regs": REGS, "depth": DEPTH, "annealed depths": DEPTHS, "tolerances": TOLERANCES}
    least, annealed = REGS[-1], found[REGS[-1]][ONE_A_DEPTH]
    proved = zip(TOLERANCES, found[least][PROVED], strict=True)
    numbers = {
        "least_reg": least,
        "halves": last[least, HALF_STEPS],
        "annealed_error": annealed[576],
        "limits": [{"reg": reg, "products": [f"{name}: {last[reg, name]:.2f}" for name in LIMITS]} for reg in REGS],
        "orders": [math.exp(1 / reg) for reg in REGS],
        "annealed": [f"{annealed[k]:.1e} at {k}" for k in (72, 144, 288, 576)],
        "proved": [f"{tol:g} with {k} layers" for tol, k in proved],
        "least_tol": TOLERANCES[-1],
        "least_proved": max(found[least][PROVED]),
        "fast": [f"{DEPTH * found[reg]['relaxed, ω = 1.95'][DEPTH]:.2g} at λ = {reg}" for reg in REGS],
    }
    return Outcome(rows, _draw(found), numbers, checks, settings)


def curves(reg: float) -> dict[str, Curve]:
    """Marginal error against layers at λ = ``reg``: one long network of each schedule, annealed networks of many depths."""
    shown = sorted({round(10 ** (k / 20)) for k in range(math.ceil(20 * math.log10(DEPTH)))} | {0, 576, DEPTH})
    found: dict[str, Curve] = {}
    for name, schedule in CURVES.items():
        errors = [state.error for state in two_point.path(schedule.layers(reg, DEPTH))]
        found[name] = {k: errors[k] for k in shown}
    errors = [state.error for state in two_point.sinkhorn_path(reg, DEPTH)]
    found[HALF_STEPS] = {k: errors[k] for k in shown}
    for name, networks in (
        (ONE_A_DEPTH, [Annealed().layers(reg, depth) for depth in DEPTHS]),
        (PROVED, [two_point.annealing(reg, tol) for tol in TOLERANCES]),
    ):
        found[name] = {len(layers): [*two_point.path(layers)][-1].error for layers in networks}
    return found


def _draw(found: dict[float, dict[str, Curve]]) -> figures.Figure:
    fig, axes = figures.figure(10, 4.4, 1, 2, sharey=True)
    names = [*CURVES, HALF_STEPS, ONE_A_DEPTH, PROVED]
    dashes = ("-", "-", "--", "-", ":", "--", "none", "none")
    for ax, (reg, each) in zip(axes, found.items(), strict=True):
        for name, colour, dash in zip(names, (*figures.CYCLE, figures.INK), dashes, strict=True):
            known = dict(zip(each[name], TOLERANCES, strict=True)) if name == PROVED else each[name]  # run: rounding only
            points = [(k, k * error) for k, error in known.items() if k]
            marker = {ONE_A_DEPTH: "o", PROVED: "v"}.get(name, "")
            ax.plot(*zip(*points, strict=True), linestyle=dash, marker=marker, color=colour, label=name)
        depths = [k for k in each["gradient"] if k]
        for step in COVERED.values():
            bound = [k * two_point.error_bound(reg, k, step * reg) for k in depths]
            dash = ":" if step == 1 else "-"
            ax.plot(depths, bound, dash, color=figures.GREY, linewidth=0.8, label=f"theorem D, bound for γ = {GAMMA[step]}")
        ax.set(xscale="log", yscale="log", ylim=(1e-5, 1e2), xlabel="layers k", title=f"λ = {reg:g}: level lines are 1/k")
    axes[0].set_ylabel("marginal error × k")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig
