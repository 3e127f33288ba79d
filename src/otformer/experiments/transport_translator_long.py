"""Does what `transport-translator` finds at the beginning of training last?

The same translators without the one that leaks, for the shipped translator's number of steps and with its rates, two seeds
each; softmax's first seed is the shipped translator itself. The time of the GPU ended before the steps did: each run says
how many it had, and the others had fewer than softmax. So there are two comparisons:

    at a third of the steps    all have had the same number of steps, at the same rates (the shipped one was not looked at
                               then: one seed of softmax); means over heads, on 300 sentence pairs
    at the end                 where a variant with fewer steps is ahead of softmax, it is in spite of them; where it is
                               behind, nothing follows from that
"""

from __future__ import annotations

from statistics import mean
from typing import Any

from otformer import figures
from otformer.experiments.experiment import Context, Finding, Outcome, Row
from otformer.experiments.transport_translator import (
    BASE,
    CAUSAL,
    LEAK,
    PLACES,
    TINTS,
    Trained,
    Trainings,
    bleu,
    by_layer,
    layer_rows,
    percent,
    plain,
    seeds,
)

LONG = "transport_translator_long.json"  # in words/data: what `compare digest` wrote
COMPARED = (BASE, *CAUSAL)
LAYER_1, TOP, CLOSEST = "first layer", "best layer", "distance, nearest layer"  # what is compared at equal steps


def at_equal_steps(one: Trained) -> dict[str, float]:
    """Hits@1 of the first and of the best layer, and the least distance to the plan, at a third of the steps; or nothing."""
    lines = [line for reading in PLACES for line in one.layers(reading, "early")]
    if not lines:
        return {}
    return {
        LAYER_1: max(line["Hits@1"] for line in lines if line["layer"] == 1),
        TOP: max(line["Hits@1"] for line in lines),
        CLOSEST: min(line["distance"] for line in lines),
    }


def run(context: Context) -> Outcome:
    found = Trainings.read(LONG)
    rows = [line for one in context.each(found.runs) for line in _rows(one)]
    settings = {"steps": found.steps, "runs": len(found.runs), "seconds per step": found.seconds}
    return Outcome(rows, _draw(found), _told(found), _checks(found), settings, _found(found))


def _rows(one: Trained) -> list[Row]:
    own = {"steps": one.entry["done"], "early_step": one.entry["early_step"]}
    early = {(line["reading"], line["layer"]): line for reading in PLACES for line in one.layers(reading, "early")}
    names = {place: reading for reading, place in PLACES.items()}
    return [
        line | own | {"Hits@1_early": early.get((names[line["reading"]], line["layer"]), {}).get("Hits@1")}
        for line in layer_rows(one)
    ]


def early(found: Trainings, variant: str, name: str) -> list[float]:
    """A number at equal steps, of every seed that was looked at then."""
    return [at_equal_steps(one)[name] for one in found.of(variant) if at_equal_steps(one)]


def _checks(found: Trainings) -> dict[str, bool]:
    gaps = [abs(run.numbers["nats, prefixes"] - run.numbers["nats, whole target"]) for run in found.runs]
    checks = {f"none leaks: held-out loss from prefixes is that with the whole target, to {LEAK:g}": max(gaps) < LEAK}
    for one in CAUSAL:
        for name in (LAYER_1, TOP):
            ahead = min(early(found, one, name)) > max(early(found, BASE, name))
            checks[f"at equal steps {one} aligns better by its {name}: Hits@1"] = ahead
        nearer = max(early(found, one, CLOSEST)) < min(early(found, BASE, CLOSEST))
        checks[f"at equal steps {one} is nearer to the plan of its embeddings"] = nearer
        checks[f"with fewer steps {one} has a lower AER by its best head"] = found.below(one, "AER, best head")
        checks[f"with fewer steps {one} finds more by its best head: Hits@1"] = found.above(one, "Hits@1, best head")
        checks[f"with fewer steps {one} aligns better by its first layer: Hits@1"] = found.above(one, "Hits@1, first layer")
    return checks


# Words


def _steps(found: Trainings, variant: str) -> str:
    return " and ".join(f"{run.entry['done']:,}" for run in found.of(variant))


def _told(found: Trainings) -> str:
    """A sentence for each variant, with both seeds."""
    third = next(run.entry["early_step"] for run in found.runs if run.entry["early_step"])
    told = [f"Rates are those of {found.steps:,} steps; per cent unless said."]
    for one in COMPARED:
        equal = {name: " and ".join(map(percent, early(found, one, name))) for name in (LAYER_1, TOP)}
        near = " and ".join(map(plain, early(found, one, CLOSEST)))
        told.append(
            f"{one}: at {third:,} steps Hits@1 of the best layer {equal[TOP]}, of the first {equal[LAYER_1]}, distance to "
            f"the plan of the embeddings at the nearest layer {near}. After {_steps(found, one)} steps Hits@1 of the best "
            "layer "
            f"{seeds(found, one, 'Hits@1, best layer', percent)}, of the first "
            f"{seeds(found, one, 'Hits@1, first layer', percent)}, of the best head "
            f"{seeds(found, one, 'Hits@1, best head', percent)}; AER of the best head "
            f"{seeds(found, one, 'AER, best head', percent)}; distance "
            f"{seeds(found, one, 'distance, nearest layer', plain)}; mean marginal error "
            f"{seeds(found, one, 'marginal error, mean of layers', plain)}; BLEU "
            f"{seeds(found, one, 'BLEU, held-out', bleu)} held-out, "
            f"{seeds(found, one, 'BLEU, newstest2014', bleu)} on newstest2014; nats per held-out token "
            f"{seeds(found, one, 'nats, prefixes', plain)}."
        )
    return " ".join(told)


def _found(found: Trainings) -> Finding:
    third = next(run.entry["early_step"] for run in found.runs if run.entry["early_step"])

    def each(name: str) -> str:
        return ", ".join(f"{one} {100 * mean(early(found, one, name)):.0f}" for one in COMPARED)

    def end(name: str, scale: float, digits: int) -> str:
        return ", ".join(f"{one} {scale * mean(found.values(one, name)):.{digits}f}" for one in COMPARED)

    def ahead(name: str) -> str:
        ways = [one for one in CAUSAL if min(early(found, one, name)) > max(early(found, BASE, name))]
        return " and ".join(one for one in ways if found.above(one, f"Hits@1, {name}")) or "none"

    return Finding(
        f"Ahead of softmax at {third:,} steps and at the end: by the best layer {ahead(TOP)}, by the first {ahead(LAYER_1)}",
        f"Hits@1 (%) at {third:,} steps, of the best layer: {each(TOP)}; of the first: {each(LAYER_1)}. At the end, the "
        f"others with fewer steps than softmax: AER (%) of the best head {end('AER, best head', 100, 1)}; BLEU on held-out "
        f"text {end('BLEU, held-out', 1, 1)}.",
        f"Hits@1 (%) of the best layer at {third:,} steps: {each(TOP)}",
    )


# The figure


def _draw(found: Trainings) -> figures.Figure:
    made, axes = figures.figure(12.2, 7.0, 2, 3)
    for ax, (reading, place) in zip(axes[0], PLACES.items(), strict=False):
        by_layer(ax, found, reading, "Hits@1", 100)
        ax.set(title=f"Hits@1 by layer at the end, {place}", ylabel="per cent", ylim=(0, 101))
    by_layer(axes[0, 2], found, "cross-output", "distance", 1)
    axes[0, 2].set(title="Distance to the plan at the end, output", ylabel="total variation", ylim=(0, 1.02))
    before = Trainings.read()
    for ax, name, last in ((axes[1, 0], TOP, "Hits@1, best layer"), (axes[1, 1], LAYER_1, "Hits@1, first layer")):
        _by_step(ax, before, name, last, "s--")
        _by_step(ax, found, name, last, "o-")
        ax.set(title=f"Hits@1 of the {name}", xlabel="steps", ylabel="per cent", ylim=(0, 101), xscale="log")
    _by_step(axes[1, 2], found, None, "AER, best head", "o")
    axes[1, 2].set(title="AER of the best head, Hansards", xlabel="steps", ylabel="per cent", ylim=(0, None))
    handles, labels = axes[0, 2].get_legend_handles_labels()
    made.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return made


def _by_step(axes: Any, found: Trainings, name: str | None, last: str, mark: str) -> None:
    """A third of the steps and all: short training dashed, the long one whole."""
    for variant in COMPARED:
        for one in found.of(variant):
            points = [(one.entry["done"], one.numbers[last])]
            if name is not None and at_equal_steps(one):
                points.insert(0, (one.entry["early_step"], at_equal_steps(one)[name]))
            axes.plot(
                *zip(*[(step, 100 * value) for step, value in points], strict=True), mark, color=TINTS[variant], lw=1.3
            )
