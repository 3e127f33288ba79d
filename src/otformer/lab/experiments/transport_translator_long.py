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
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.lab.experiments.transport_translator import (
    BASE,
    CAUSAL,
    EARLY,
    END,
    LEAK,
    PLACES,
    TINTS,
    Trained,
    Trainings,
    described,
    draw_layers,
    layer_rows,
)

LONG = "transport_translator_long.json"  # in data/: what `compare digest` wrote
COMPARED = (BASE, *CAUSAL)
FOUND_LATE = (
    "At the input plan is far behind",
    "At the output plan is ahead in every layer",
    "Plan is nearest in every layer",
)
BY_STEP = (  # layer, reading, and what the panel shows
    ("best", "output", "Output: plan stays a little ahead"),
    ("best", "input", "Input: plan falls behind"),
    ("first", "output", "First layer: plan stays far ahead"),
)


def ahead(found: Trainings, variant: str, when: str, name: str) -> bool:
    """Whether every seed of the variant is above (for a distance below) every one of softmax."""
    return found.side(variant, (when, name)) == (-1 if name == "distance" else 1)


def run(context: Context) -> Outcome:
    found = Trainings.read(LONG)
    rows = [line for one in context.each(found.runs) for line in _rows(one)]
    settings = {"steps": found.steps, "runs": len(found.runs)}
    return Outcome(rows, _draw(found), _numbers(found), _checks(found), settings)


def _rows(one: Trained) -> list[Row]:
    own = {"steps": one.entry["done"], "early_step": one.entry["early_step"]}
    early = {(line["reading"], line["layer"]): line for reading in PLACES for line in one.layers(reading, EARLY)}
    names = {place: reading for reading, place in PLACES.items()}
    return [
        line | own | {"Hits@1_early": early.get((names[line["reading"]], line["layer"]), {}).get("Hits@1")}
        for line in layer_rows(one)
    ]


def _checks(found: Trainings) -> dict[str, bool]:
    gaps = [abs(run.numbers["nats, prefixes"] - run.numbers["nats, whole target"]) for run in found.runs]
    checks = {f"none leaks: held-out loss from prefixes is that with the whole target, to {LEAK:g}": max(gaps) < LEAK}
    for one in CAUSAL:
        for when, said in ((EARLY, "at equal steps"), (END, "with fewer steps")):
            for layer in ("best layer", "first layer"):
                for place in reversed(PLACES.values()):
                    claim = f"{said} {one} aligns better by its {layer}, read at the {place}: Hits@1"
                    checks[claim] = ahead(found, one, when, f"{layer}, {place}")
            checks[f"{said} {one} is nearer to the plan of its embeddings"] = ahead(found, one, when, "distance")
        checks[f"with fewer steps {one} has a lower AER by its best head"] = found.side(one, "AER, best head") < 0
        checks[f"with fewer steps {one} finds more by its best head: Hits@1"] = found.side(one, "Hits@1, best head") > 0
    return checks


def _numbers(found: Trainings) -> Numbers:
    early_steps = (run.entry["early_step"] for run in found.runs)
    return {
        "steps": found.steps,
        "third": next(step for step in early_steps if step),
        "variants": [_described(found, one) for one in COMPARED],
        "lasting": {place: _lasting(found, f"best layer, {place}") or ["no variant"] for place in PLACES.values()},
    }


def _described(found: Trainings, variant: str) -> Numbers:
    names = [name[1] for name in found.of(variant)[0].measures if name[0] == END]
    early, end = ({name: found.values(variant, (when, name)) for name in names} for when in (EARLY, END))
    return described(found, variant) | {
        "early": [early],
        "end": [end],
        "done": [run.entry["done"] for run in found.of(variant)],
        "early_mean": {name: mean(each) for name, each in early.items()},
    }


def _lasting(found: Trainings, name: str) -> list[str]:
    """The variants that are ahead of softmax at a third of the steps and at the end."""
    return [one for one in CAUSAL if all(ahead(found, one, when, name) for when in (EARLY, END))]


def _draw(found: Trainings) -> figures.Figure:
    made, axes = figures.figure(12.2, 7.0, 2, 3)
    draw_layers(axes[0], found, FOUND_LATE)
    before = Trainings.read()
    for ax, (layer, place, title) in zip(axes[1], BY_STEP, strict=True):
        _by_step(ax, before, f"{layer} layer, {place}", "s--")
        _by_step(ax, found, f"{layer} layer, {place}", "o-")
        ax.set(title=title, xlabel="steps", ylabel=f"Hits@1, {layer} layer, {place}, %", ylim=(0, 101), xscale="log")
    handles, labels = axes[0, 2].get_legend_handles_labels()
    dashed = axes[1, 0].plot([], [], "s--", color=figures.INK, lw=1.3)
    made.legend([*handles, *dashed], [*labels, "short training"], loc="outside lower center", ncols=len(labels) + 1)
    return made


def _by_step(axes: Any, found: Trainings, name: str, mark: str) -> None:
    """A third of the steps, if it was looked at then, and all."""
    for variant in COMPARED:
        for one in found.of(variant):
            steps = {EARLY: one.entry["early_step"], END: one.entry["done"]}
            points = [(steps[when], 100 * one.measures[when, name]) for when in steps if (when, name) in one.measures]
            axes.plot(*zip(*points, strict=True), mark, color=TINTS[variant], lw=1.3)
