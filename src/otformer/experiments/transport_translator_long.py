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

from collections.abc import Callable
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
    draw_layers,
    layer_rows,
    percent,
    plain,
    seeds,
)

LONG = "transport_translator_long.json"  # in words/data: what `compare digest` wrote
COMPARED = (BASE, *CAUSAL)
EARLY, END = "early", "news"  # tables of a run: at a third of the steps, and after all it had


def layer_hits(one: Trained, when: str) -> dict[str, float]:
    """Hits@1 of the first and of the best layer at either reading, and the least distance to the plan; or nothing."""
    found: dict[str, float] = {}
    for reading, place in PLACES.items():
        lines = one.layers(reading, when)
        if lines:
            found[f"best layer, {place}"] = max(line["Hits@1"] for line in lines)
            found[f"first layer, {place}"] = next(line["Hits@1"] for line in lines if line["layer"] == 1)
            least = min(line["distance"] for line in lines)
            found["distance"] = min(least, found.get("distance", least))
    return found


def values(found: Trainings, variant: str, when: str, name: str) -> list[float]:
    """A number of `layer_hits`, of every seed that was looked at then."""
    each = [layer_hits(one, when) for one in found.of(variant)]
    return [numbers[name] for numbers in each if numbers]


def ahead(found: Trainings, variant: str, when: str, name: str) -> bool:
    """Whether every seed of the variant is above (for a distance below) every one of softmax."""
    own, base = values(found, variant, when, name), values(found, BASE, when, name)
    return max(own) < min(base) if name == "distance" else min(own) > max(base)


def run(context: Context) -> Outcome:
    found = Trainings.read(LONG)
    rows = [line for one in context.each(found.runs) for line in _rows(one)]
    settings = {"steps": found.steps, "runs": len(found.runs)}
    return Outcome(rows, _draw(found), _told(found), _checks(found), settings, _found(found))


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
        checks[f"with fewer steps {one} has a lower AER by its best head"] = found.below(one, "AER, best head")
        checks[f"with fewer steps {one} finds more by its best head: Hits@1"] = found.above(one, "Hits@1, best head")
    return checks


# Words


def _third(found: Trainings) -> int:
    return int(next(run.entry["early_step"] for run in found.runs if run.entry["early_step"]))


def _layers_told(found: Trainings, variant: str, when: str) -> str:
    def both(name: str, form: Callable[[float], str] = percent) -> str:
        return " and ".join(map(form, values(found, variant, when, name)))

    parts = [
        f"of the {layer} {both(f'{layer}, output')} read at the output, {both(f'{layer}, input')} at the input"
        for layer in ("best layer", "first layer")
    ]
    return (
        f"Hits@1 {'; '.join(parts)}; distance to the plan of the embeddings at the nearest layer {both('distance', plain)}"
    )


def _told(found: Trainings) -> str:
    """Sentences for each variant, with both seeds."""
    told = [f"Learning rates are those of {found.steps:,} steps; per cent unless said."]
    for one in COMPARED:
        steps = " and ".join(f"{run.entry['done']:,}" for run in found.of(one))
        told.append(
            f"{one}: at {_third(found):,} steps {_layers_told(found, one, EARLY)}. After {steps} steps "
            f"{_layers_told(found, one, END)}; Hits@1 of the best head {seeds(found, one, 'Hits@1, best head', percent)}; "
            f"AER of the best head {seeds(found, one, 'AER, best head', percent)}; mean marginal error "
            f"{seeds(found, one, 'marginal error, mean of layers', plain)}; BLEU "
            f"{seeds(found, one, 'BLEU, held-out', bleu)} held-out, "
            f"{seeds(found, one, 'BLEU, newstest2014', bleu)} on newstest2014; nats per held-out token "
            f"{seeds(found, one, 'nats, prefixes', plain)}."
        )
    return " ".join(told)


def _found(found: Trainings) -> Finding:
    def each(name: str) -> str:
        return ", ".join(f"{one} {100 * mean(values(found, one, EARLY, name)):.0f}" for one in COMPARED)

    def end(name: str, scale: float) -> str:
        return ", ".join(f"{one} {scale * mean(found.values(one, name)):.1f}" for one in COMPARED)

    def lasting(place: str) -> str:
        name = f"best layer, {place}"
        ways = (one for one in CAUSAL if ahead(found, one, EARLY, name) and ahead(found, one, END, name))
        return " and ".join(ways) or "no variant"

    return Finding(
        f"Trained longer, {lasting('output')} aligns better than softmax where it is read at the output, "
        f"{lasting('input')} at the input",
        f"Hits@1 (%) of the best layer at {_third(found):,} steps, read at the output: {each('best layer, output')}; at the "
        f"input: {each('best layer, input')}. At the end, the others with fewer steps than softmax: AER (%) of the best "
        f"head {end('AER, best head', 100)}; BLEU on held-out text {end('BLEU, held-out', 1)}.",
        f"Hits@1 (%) of the best layer at {_third(found):,} steps, output: {each('best layer, output')}",
    )


# The figure


def _draw(found: Trainings) -> figures.Figure:
    made, axes = figures.figure(12.2, 7.0, 2, 3)
    draw_layers(axes[0], found)
    before = Trainings.read()
    for ax, (layer, place) in zip(axes[1], (("best", "output"), ("best", "input"), ("first", "output")), strict=True):
        _by_step(ax, before, f"{layer} layer, {place}", "s--")
        _by_step(ax, found, f"{layer} layer, {place}", "o-")
        ax.set(title=f"Hits@1 of the {layer} layer, {place}", xlabel="steps", ylabel="per cent", ylim=(0, 101), xscale="log")
    handles, labels = axes[0, 2].get_legend_handles_labels()
    dashed = axes[1, 0].plot([], [], "s--", color=figures.INK, lw=1.3)
    made.legend([*handles, *dashed], [*labels, "short training"], loc="outside lower center", ncols=len(labels) + 1)
    return made


def _by_step(axes: Any, found: Trainings, name: str, mark: str) -> None:
    """A third of the steps, if it was looked at then, and all."""
    for variant in COMPARED:
        for one in found.of(variant):
            steps = {EARLY: one.entry["early_step"], END: one.entry["done"]}
            points = [(steps[when], 100 * layer_hits(one, when)[name]) for when in (EARLY, END) if layer_hits(one, when)]
            axes.plot(*zip(*points, strict=True), mark, color=TINTS[variant], lw=1.3)
