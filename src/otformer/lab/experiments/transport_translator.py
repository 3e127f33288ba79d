"""Does a translator whose cross-attention must be a transport align better, earlier, and at what cost?

Translators that differ in their cross-attention alone, two seeds each, trained on one GPU by
``python -m otformer.lab.translators.compare``: lab/translators/variants.py has the variants, words/models/cross_attention.py
the rules and what leaks. Logs and scores are shipped as one file; here they become a table, a figure and claims.

A claim about a variant holds if both of its seeds are on that side of both of softmax: seeds differ, and two are few. The
rule is weak: where a variant is no other than softmax, the six ways in which the four runs can come in order are as likely,
so both seeds are above with probability 1/6, and on one side or the other with 1/3. It is therefore put to all of MEASURES,
gains and costs alike, and how often it finds something is told beside how often it would find something in nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import product
from statistics import mean
from typing import Any

from otformer import figures
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.lab.translators.networks import Translation

STORED = "transport_translator.json"  # in data/: what `compare digest` wrote
BASE, CAUSAL, OTHERS = "softmax", ("online", "plan"), ("online", "balanced", "plan")
TINTS = {"softmax": figures.GREY, "online": figures.BLUE, "balanced": figures.ORANGE, "plan": figures.GREEN}
PLACES = {"cross-input": "input", "cross-output": "output"}
EARLY, END = "early", "news"  # tables of a run: at a third of the steps, and after all it had
Measure = str | tuple[str, str]  # a name, or the name of a table and a name
# What a variant is judged by, in the words of a check; 1: more is better, −1: less is. Gains are asked for, then costs.
GAINS = {
    "aligns better than softmax: Hits@1 of its best layer": ("Hits@1, best layer", 1),
    "aligns from the first layer: Hits@1 of that": ("Hits@1, first layer", 1),
    "aligns better by its best head: Hits@1": ("Hits@1, best head", 1),
    "aligns sooner in training: Hits@1 of its best layer at a third of the steps": ("Hits@1, best layer, early", 1),
    "aligns better by its best head: AER": ("AER, best head", -1),
    "is nearer to the plan of its embeddings": ("distance, nearest layer", -1),
}
COSTS = {
    "aligns worse where it is read at the input: Hits@1 of its best layer": ("Hits@1, best layer, input", 1),
    "translates worse: BLEU on held-out text": ("BLEU, held-out", 1),
    "translates worse: BLEU on newstest2014": ("BLEU, newstest2014", 1),
    "has a higher loss: nats per held-out token, from prefixes": ("nats, prefixes", -1),
}
MEASURES = dict([*GAINS.values(), *COSTS.values()])
CHANCE = 1 / 3  # that both seeds of one are on one side of both of the other where nothing differs
FOUND_EARLY = (
    "At the input no variant is ahead",
    "At the output plan aligns from layer 1",
    "Plan is nearest, but for the leak",
)
BARS = (  # measures of a panel, what it shows, its axis, and the factor on them
    (("BLEU, held-out", "BLEU, newstest2014"), "Balanced cannot translate", "BLEU, prefix by prefix", 1),
    (("AER, best head",), "Balanced aligns best: it leaks", "AER of the best head, Hansards, %", 100),
    (("nats, whole target", "nats, prefixes"), "The loss from prefixes shows the leak", "nats per held-out token", 1),
)
LEAK = 0.01  # nats per token by which rounding may move a loss


@dataclass(frozen=True)
class Trained:
    """One trained translator: a variant and a seed, with its entry of the shipped file."""

    entry: dict[str, Any]
    columns: dict[str, list[str]]

    @property
    def variant(self) -> str:
        return str(self.entry["variant"])

    def table(self, name: str) -> list[Row]:
        """The probe's table on ``news``, ``hansards`` or ``early``."""
        return [dict(zip(self.columns[name], line, strict=True)) for line in self.entry[name]]

    def layers(self, reading: str, name: str = END) -> list[Row]:
        """The mean over heads of every layer."""
        return [line for line in self.table(name) if line["reading"] == reading and line["head"] == 0]

    @cached_property
    def numbers(self) -> Row:
        """What the claims are about; the best reading, layer or head is chosen on the sentences it is scored on."""
        means = [line for reading in PLACES for line in self.layers(reading)]
        early = [line for reading in PLACES for line in self.layers(reading, "early")]
        heads = [line for line in self.table("news") if line["head"]]
        links = [line for line in self.table("hansards") if line["head"]]
        embeddings = next(line for line in self.table("news") if line["method"] == "transport")
        return {
            "Hits@1, best layer": max(line["Hits@1"] for line in means),
            "Hits@1, best layer, input": max(line["Hits@1"] for line in means if line["reading"] == "cross-input"),
            "Hits@1, first layer": max(line["Hits@1"] for line in means if line["layer"] == 1),
            "Hits@1, best head": max(line["Hits@1"] for line in heads),
            "Hits@1, best layer, early": max((line["Hits@1"] for line in early), default=None),
            "AER, best head": min((line["AER"] for line in links), default=None),
            "distance, nearest layer": min(line["distance"] for line in means),
            "marginal error, mean of layers": mean(line["marginal_error"] for line in means),
            "Hits@1, OT on embeddings": embeddings["Hits@1"],
            "BLEU, held-out": self.entry["bleu"].get("held-out"),
            "BLEU, newstest2014": self.entry["bleu"].get("newstest2014"),
            "nats, whole target": self.entry["loss"]["teacher"],
            "nats, prefixes": self.entry["loss"]["prefix"],
        }

    @cached_property
    def measures(self) -> dict[Measure, Any]:
        """The numbers, and by the table and a name: Hits@1 of the first and the best layer at either reading, and the
        least distance to the plan."""
        found: dict[Measure, Any] = {name: value for name, value in self.numbers.items()}
        for when, (reading, place) in product((EARLY, END), PLACES.items()):
            if lines := self.layers(reading, when):
                found[when, f"best layer, {place}"] = max(line["Hits@1"] for line in lines)
                found[when, f"first layer, {place}"] = next(line["Hits@1"] for line in lines if line["layer"] == 1)
                least = min(line["distance"] for line in lines)
                found[when, "distance"] = min(least, found.get((when, "distance"), least))
        return found


@dataclass(frozen=True)
class Trainings:
    """All trained translators of a shipped file."""

    steps: int
    seconds: dict[str, float]  # of a step, by run: eight processes at once on one GPU
    runs: list[Trained]

    @classmethod
    def read(cls, name: str = STORED) -> Trainings:
        """Read a shipped file."""
        stored = json.loads(files("otformer.lab.experiments").joinpath("data", name).read_text(encoding="utf-8"))
        runs = [Trained(entry, stored["columns"]) for entry in stored["runs"]]
        return cls(stored["steps"], stored["together"], runs)

    def of(self, variant: str) -> list[Trained]:
        return [run for run in self.runs if run.variant == variant]

    def values(self, variant: str, name: Measure) -> list[float]:
        """The values of a measure, one per seed that has it."""
        found = (run.measures.get(name) for run in self.of(variant))
        return [value for value in found if value is not None]

    def side(self, variant: str, name: Measure) -> int:
        """Compare with softmax: 1 where every seed of the variant is above every one of softmax, −1 where below, else 0."""
        own, base = self.values(variant, name), self.values(BASE, name)
        return (min(own) > max(base)) - (max(own) < min(base))

    def cost(self, variant: str) -> float:
        """Time of a step over that of softmax, mean of the seeds, while all of them ran."""
        own, base = (mean(self.seconds[f"{one}-{run.entry['seed']}"] for run in self.of(one)) for one in (variant, BASE))
        return own / base


def run(context: Context) -> Outcome:
    found = Trainings.read()
    rows = [line for one in context.each(found.runs) for line in layer_rows(one)]
    settings = {"steps": found.steps, "runs": len(found.runs), "seconds per step": found.seconds}
    return Outcome(rows, _draw(found), _numbers(found), _checks(found), settings)


def layer_rows(one: Trained) -> list[Row]:
    """A line for each layer and reading, with the numbers of the whole network behind."""
    lines: list[Row] = []
    for reading, place in PLACES.items():
        links = {line["layer"]: line for line in one.layers(reading, "hansards")}
        for line in one.layers(reading):
            own: Row = {"variant": one.variant, "seed": one.entry["seed"], "reading": place, "layer": line["layer"]}
            own |= {name: line[name] for name in ("Hits@1", "Hits@1_low", "Hits@1_high", "distance", "marginal_error")}
            own |= {"row_entropy": line["row_entropy"], "AER": links.get(line["layer"], {}).get("AER")}
            lines.append(own | one.numbers)
    return lines


def _checks(found: Trainings) -> dict[str, bool]:
    gaps = {
        one: [run.numbers["nats, prefixes"] - run.numbers["nats, whole target"] for run in found.of(one)] for one in TINTS
    }
    checks = {
        f"softmax, online and plan do not leak: held-out loss from prefixes is that with the whole target, to {LEAK:g}": all(
            abs(gap) < LEAK for one in (BASE, *CAUSAL) for gap in gaps[one]
        ),
        "balanced leaks: from prefixes it loses over 0.1 nats per token": all(gap > 0.1 for gap in gaps["balanced"]),
    }
    for one in OTHERS:
        checks |= {f"{one} {claim}": found.side(one, name) == MEASURES[name] for claim, (name, _) in GAINS.items()}
        checks |= {f"{one} {claim}": found.side(one, name) == -MEASURES[name] for claim, (name, _) in COSTS.items()}
    return checks


def _numbers(found: Trainings) -> Numbers:
    variants = {one: described(found, one) | {"cost": found.cost(one)} for one in TINTS}
    return {
        "steps": found.steps,
        "shipped_steps": Translation.steps,
        "variants": [*variants.values()],
        "causal": [variants[one] for one in (BASE, *CAUSAL)],
        "leaking": variants["balanced"]["mean"],
        "others": [sides(found, one) for one in OTHERS],
        "better": [one for one in CAUSAL if found.side(one, "Hits@1, best layer") > 0] or ["none"],
    }


def described(found: Trainings, variant: str) -> Numbers:
    """Each measure of a variant: the value of every seed, and their mean."""
    seeds = {name: found.values(variant, name) for name in found.of(variant)[0].numbers}
    return {"variant": variant, "seeds": seeds, "mean": {name: mean(values) for name, values in seeds.items() if values}}


def sides(found: Trainings, variant: str) -> Numbers:
    """The measures by which both seeds are better than both softmax seeds, and those by which both are worse.

    >>> found = sides(Trainings.read(), "online")
    >>> found["count"], found["measures"], round(found["expected"], 1)
    (4, 10, 3.3)
    """
    ways = {"better": 1, "worse": -1}
    named = {
        word: [name for name in MEASURES if found.side(variant, name) == way * MEASURES[name]] for word, way in ways.items()
    }
    return {
        "variant": variant,
        "count": sum(map(len, named.values())),
        "measures": len(MEASURES),
        "expected": CHANCE * len(MEASURES),
        "sides": [{"word": word, "names": names} for word, names in named.items() if names],
    }


def _draw(found: Trainings) -> figures.Figure:
    made, axes = figures.figure(12.2, 7.0, 2, 3)
    draw_layers(axes[0], found, FOUND_EARLY)
    for ax, (names, title, axis, scale) in zip(axes[1], BARS, strict=True):
        _bars(ax, found, names, title, axis, scale)
    handles, labels = axes[0, 2].get_legend_handles_labels()
    made.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return made


def draw_layers(row: Any, found: Trainings, titles: Sequence[str]) -> None:
    """Draw three panels by layer: Hits@1 for both readings, and the distance to the plan beside that of a uniform matrix.

    ``titles`` say what each of them shows.
    """
    for ax, (reading, place) in zip(row, PLACES.items(), strict=False):
        _by_layer(ax, found, reading, "Hits@1", 100)
        ax.set(ylabel=f"Hits@1, read at the {place}, %", ylim=(0, 101))
    _by_layer(row[2], found, "cross-output", "distance", 1)
    uniform = mean(run.layers("cross-output")[0]["uniform"] for run in found.runs)
    row[2].axhline(uniform, color=figures.GREY, ls="--", lw=1, label="a uniform matrix")
    row[2].set(ylabel="distance to the plan, at the output", ylim=(0, 1.02))
    for ax, title in zip(row, titles, strict=True):
        ax.set_title(title)


def _by_layer(axes: Any, found: Trainings, reading: str, name: str, scale: float) -> None:
    """Both seeds of every variant: lines of one colour."""
    for variant, tint in TINTS.items():
        for k, one in enumerate(found.of(variant)):
            lines = one.layers(reading)
            label = ("_" if k else "") + (variant if variant in (BASE, *CAUSAL) else f"{variant} (leaks)")
            axes.plot([x["layer"] for x in lines], [scale * x[name] for x in lines], "o-", color=tint, lw=1.3, label=label)
    axes.set_xlabel("layer")


def _bars(axes: Any, found: Trainings, names: Sequence[str], title: str, axis: str, scale: float) -> None:
    """A group of bars for each name: means of the seeds, with a dot for each seed."""
    for place, name in enumerate(names):
        for k, (variant, tint) in enumerate(TINTS.items()):
            values = [scale * value for value in found.values(variant, name)]
            x = place + 0.2 * (k - 1.5)
            axes.bar(x, mean(values), 0.18, color=tint)
            axes.plot([x] * len(values), values, ".", color=figures.INK, ms=5)
    axes.set_xticks(range(len(names)), [name.partition(", ")[2] for name in names])
    axes.set(title=title, ylabel=axis)
    axes.grid(visible=False, axis="x")
