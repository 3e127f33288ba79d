"""The note's table of experiments.

Every number is read from the recorded results (`otformer.lab.experiments.recorded`).
`make report` compares them with a new run.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from statistics import median

from otformer.lab.experiments import recorded

Rows = list[dict[str, str]]


def number(text: str) -> float:
    return float(text) if text else 0.0


def column(rows: Rows, name: str) -> list[float]:
    return [number(row[name]) for row in rows]


def the(rows: Rows, name: str, **where: str) -> float:
    """The number of the one row that has these cells."""
    (row,) = [row for row in rows if all(row[key] == value for key, value in where.items())]
    return number(row[name])


def power(value: float) -> str:
    """2e-14 as typst mathematics."""
    digits, exponent = f"{value:.0e}".split("e")
    return f"${digits} dot 10^({int(exponent)})$"


def theorem_gd(rows: Rows) -> str:
    return f"layers differ from gradient descent by at most {power(max(column(rows, 'frozen sink: largest gap')))}"


def convergence(rows: Rows) -> str:
    ours, papers = "γ = λ, frozen sink: median", "the paper's γ, r = 0.1: median"
    return (
        f"distance to the plan at layer {rows[-1]['layer']}: {power(number(rows[-1][ours]))} with $gamma = lambda$, "
        f"{number(rows[-1][papers]):.2f} with the lemma's $gamma$; {number(rows[0][ours]):.2f} at layer 0"
    )


def sizes(rows: Rows) -> str:
    off = [power(number(row["largest |A − P*| at layer 2000"])) for row in rows[:2]]
    return f"one set of weights, layer 2000: off by {off[0]} at $n = {rows[0]['n']}$, {off[1]} at $n = {rows[1]['n']}$"


def rates(rows: Rows) -> str:
    return (
        f"measured local rates differ from the proved ones by at most {100 * max(column(rows, 'relative difference')):.1f} %"
    )


def depth(rows: Rows) -> str:
    unfinished = {row["λ"] for row in rows if not row["annealed"]}  # more than the layers that were run
    reg = min(number(row["λ"]) for row in rows if row["λ"] not in unfinished)
    ways = ("Sinkhorn half-steps", "alternating", "relaxed, climbing ω", "annealed")
    layers = [median(column([row for row in rows if number(row["λ"]) == reg], way)) for way in ways]
    return (
        f"$lambda = {reg:g}$, medians: Sinkhorn {layers[0]:,.0f} half-steps, alternating heads {layers[1]:,.0f} layers, "
        f"over-relaxed {layers[2]:,.0f}, annealed {layers[3]:,.0f}"
    )


def two_point(rows: Rows) -> str:
    last = {row["schedule"]: row for row in rows if row["λ"] == "0.05"}.values()  # the last row of each schedule
    times = {row["schedule"]: number(row["error × layers"]) for row in last}
    shown = ("gradient", "alternating", "relaxed, ω = 1.8", "Sinkhorn, half-steps")
    return "error $times$ layers at the last layer: " + "; ".join(f"{name}: {times[name]:.2f}" for name in shown)


def sorting(rows: Rows) -> str:
    def of(task: str) -> str:
        chosen = [row for row in rows if row["task"] == task]
        return f"{sum(int(row['exact']) for row in chosen)} of {sum(int(row['problems']) for row in chosen)}"

    return f"random lists sorted exactly: {of('sort numbers')} by 288 layers, {of('count numbers')} by two layers that count"


def ablation(rows: Rows) -> str:
    changes = ("the whole network", "the minimal prompt, 2d + 3 columns", "without the sink")
    whole, minimal, sink = (the(rows, "plan error", change=change) for change in changes)
    return f"plan error {power(whole)}; with $2d + 3$ columns {power(minimal)}; without the sink {sink:.2f}"


def generalization(rows: Rows) -> str:
    losses = ("squared error on the sorted list", "squared error on the attention")
    right = [the(rows, "rows right, %: median", objective=loss, n="9") for loss in losses]
    return (
        f"trained on 7 points, rows right at $n = 9$: {right[0]:.0f} % (loss on the list), {right[1]:.0f} % (on attention)"
    )


def author_training(rows: Rows) -> str:
    read = {"recipe": "author", "lists": "draws", "score": "rows by returned numbers"}
    near, far = (the(rows, "median", n=n, **read) for n in ("7", "9"))
    return f"the author's data and loss, rows right: {near:.0f} % at $n = 7$, {far:.0f} % at $n = 9$"


def beyond(rows: Rows) -> str:
    ours = [row for row in rows if row["lists"] == "real-valued lists" and row["network"].startswith("sort-beyond:")]
    right = (f"{the(ours, 'rows right, %: median', n=n):.0f} % at $n = {n}$" for n in ("9", "15", "30"))
    return "from the construction, at most 7 points, real lists, rows right: " + ", ".join(right)


def words(rows: Rows) -> str:
    layers = [
        row for row in rows if row["method"] == "attention" and row["head"] == "0" and row["distance"]
    ]  # mean of heads
    nearest = min(layers, key=lambda row: number(row["distance"]))
    return (
        f"our small translator is nearest to the plan at layer {nearest['layer']} of 6: {number(nearest['distance']):.2f}, "
        f"uniform attention {number(nearest['uniform']):.2f}"
    )


def vectors(rows: Rows) -> str:
    hits = [the(rows, "Hits@1", languages="en-fr", reading="sentence", method=method) for method in ("OT", "nearest")]
    return f"our word vectors, En–Fr, Hits\\@1: transport {hits[0]:.2f}, nearest neighbour {hits[1]:.2f}"


# experiment, the paper's item, what was recorded
LINES: tuple[tuple[str, str, Callable[[Rows], str]], ...] = (
    ("theorem-gd", "theorem 3.1", theorem_gd),
    ("convergence", "figure 3", convergence),
    ("sizes", "figure 4", sizes),
    ("rates", "local rates", rates),
    ("depth", "discussion", depth),
    ("two-point", "theorem D", two_point),
    ("sorting", "abstract", sorting),
    ("ablation", "contribution 3", ablation),
    ("generalization", "figure 2 (1)", generalization),
    ("author-training", "final version, figure 2", author_training),
    ("beyond", "open question 2", beyond),
    ("translation-attention", "figures 5 and 6", words),
    ("embedding-ot", "figure 7", vectors),
)


def table() -> str:
    """The table as typst."""
    lines = []
    for name, item, say in LINES:
        with (recorded.FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            lines.append(f"[`{name}`], [{item}], [{say(list(csv.DictReader(file)))}],")
    return (
        "#figure(table(columns: (auto, auto, 1fr), align: left, stroke: none, inset: 4pt, table.hline(),\n"
        "table.header([*experiment*], [*of the paper*], [*recorded*]), table.hline(),\n"
        + "\n".join(lines)
        + "\ntable.hline()), kind: table, caption: [Recorded results; of trainings, medians over seeds.]) <experiments>\n"
    )
