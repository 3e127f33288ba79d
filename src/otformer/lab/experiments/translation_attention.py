"""Figures 5 and 6 of the paper: cross-attention of a translation model by layer, as a finder of translated words.

The target sentence is given to the decoder. A target word is read where its subwords are the decoder's *input*, or one step
earlier, where they are its *output* (words/models/attention.py); the paper does not say which, so both are measured. As it
also speaks of self-attention, a third reading has both sentences, one after the other, as the input of the *encoder*.
Beside every layer stand transport and nearest neighbours on the model's own word embeddings, and how near attention is to
that plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from otformer import figures
from otformer.lab.experiments import _sentences as sentences
from otformer.lab.experiments._sentences import NAMES, Table, percent
from otformer.lab.experiments._texts import joined
from otformer.lab.experiments.experiment import Context, Numbers, Outcome
from otformer.words.models.models import Model, load
from otformer.words.models.shipped import folder
from otformer.words.models.subwords import encode, pool_matrix
from otformer.words.probe.probe import ProbeSettings
from otformer.words.probe.scores import ranks

METRICS = ("MRR", "Hits@1", "Hits@3")
READINGS = {"cross-input": "input", "cross-output": "output"}
COLOURS = {"cross-input": figures.BLUE, "cross-output": figures.ORANGE}
LIKENESS = {  # the beginning of the title, and the axis
    "distance": ("Distance to the plan", "total variation"),
    "marginal_error": ("Error of the column sums", "L1 error of the marginal"),
    "row_entropy": ("Entropy of the rows", "0: one word, 1: uniform"),
}
REG = ProbeSettings().reg
# Of the probe's table, beside the metrics; not AER and its kin, since gold here is one to one and not a whole alignment.
COLUMNS = ("method", "reading", "layer", "head", "sentences", "pairs", "uniform", "column_entropy", "distance_states")


def run(context: Context) -> Outcome:
    """Figure 5: English–French."""
    return measured(context, "en-fr", "translation-attention")


def run_german(context: Context) -> Outcome:
    """Figure 6: German–English."""
    return measured(context, "de-en", "translation-attention-de")


def measured(context: Context, languages: str, name: str) -> Outcome:
    """The experiment for a language pair whose model is shipped under that name."""
    place = folder(languages)
    model = load(place)
    if model.kind != "translation":
        raise ValueError(f"model {languages} must be a translation model, got an {model.kind} model: {model.name}")
    given = sentences.corpus(languages, context)
    found = ByLayer(sentences.probe(place, given, context, name))
    kept = [key for key in found.table[0] if key in (*COLUMNS, *LIKENESS) or key.startswith(METRICS)]
    rows = [{key: line[key] for key in kept} for line in found.table]
    about = f"{NAMES[languages]}, {given.label}"
    size = f"{sentences.size_of(model)}, trained here"
    settings = {"model": languages, "corpus": given.label, "λ": REG, "gold": "one to one"}
    hits, chance = encoder_pair(model, given)
    numbers = _numbers(found) | {"about": about, "size": size, "label": given.label, "encoder": hits, "chance": chance}
    apart = "ours: with both sentences in the encoder some layer finds twice as many as chance (Hits@1, mean of heads)"
    checks = found.checks(languages) | ({apart: max(hits) > 2 * chance} if hits else {})
    rows += [dict.fromkeys(kept) | _encoder_row(k, value) for k, value in enumerate(hits, 1)]
    return Outcome(rows, _draw(found), numbers, checks, settings)


def _encoder_row(layer: int, hits: float) -> Numbers:
    return {"method": "attention", "reading": "encoder-pair", "layer": layer, "head": 0, "Hits@1": hits}


@torch.inference_mode()
def encoder_pair(model: Model, given: sentences.Corpus, most: int = 1000) -> tuple[list[float], float]:
    """Hits@1 of every encoder layer, mean of heads, where both sentences are its input, target words attending to source
    words; and that of a guess. Means over sentences with gold pairs, of the first ``most``; none where no pair fits."""
    found, chance = [], []
    for pair, gold in zip(given.pairs[:most], given.gold, strict=False):
        source, target = (encode(model.tokenizer, side, by=given.by) for side in pair)
        gold = [(i, j) for i, j in gold if source.member[i].any() and target.member[j].any()]
        ids = [*source.ids, *target.ids]
        if gold and len(ids) <= (model.limit or len(ids)):
            out = model.network.get_encoder()(torch.tensor([ids], device=model.network.device), output_attentions=True)
            A = torch.stack(out["attentions"])[:, 0].mean(1)[:, len(source.ids) :, : len(source.ids)]  # [L, T, S]
            words = pool_matrix(A, target.member, source.member, "mean").cpu().numpy()
            found.append((ranks(words, gold) == 1).mean(-1))
            chance.append(1 / len(source.member))
    return (np.mean(found, axis=0).tolist(), float(np.mean(chance))) if found else ([], 0.0)


@dataclass(frozen=True)
class ByLayer:
    """Questions to the table of a probe: layers, heads, trends."""

    table: Table

    def layers(self, reading: str) -> Table:
        """The mean over heads of every layer."""
        return [line for line in self.table if line["reading"] == reading and line["head"] == 0]

    def heads(self, reading: str) -> Table:
        """The head with most Hits@1 of every layer: chosen on the sentences it is scored on."""
        single = [line for line in self.table if line["reading"] == reading and line["head"] > 0]
        count = max(line["layer"] for line in single)
        return [max((h for h in single if h["layer"] == k), key=lambda h: h["Hits@1"]) for k in range(1, count + 1)]

    def vectors(self, method: str) -> dict[str, Any]:
        """Transport or nearest neighbours on the model's embeddings."""
        return next(line for line in self.table if (line["method"], line["reading"]) == (method, "embeddings"))

    def values(self, reading: str, metric: str) -> list[float]:
        return [line[metric] for line in self.layers(reading)]

    def best(self, reading: str) -> dict[str, Any]:
        """The layer with most Hits@1."""
        return max(self.layers(reading), key=lambda line: line["Hits@1"])

    def nearest(self, reading: str) -> dict[str, Any]:
        """The layer nearest to the plan of embeddings."""
        return min(self.layers(reading), key=lambda line: line["distance"])

    def climbs(self, reading: str) -> bool:
        """Whether every layer is above the one before, in all metrics."""
        return all(later > earlier for metric in METRICS for earlier, later in pairwise(self.values(reading, metric)))

    def trend(self, reading: str) -> float:
        """Spearman's correlation of Hits@1 and the layer's number: 1 where every layer is above the one before."""
        hits = self.values(reading, "Hits@1")
        return float(spearmanr(hits, range(len(hits))).statistic) if len(set(hits)) > 1 else 0.0

    def checks(self, languages: str) -> dict[str, bool]:
        """Each claim in words, and whether the table bears it out."""
        checks: dict[str, bool] = {}
        for reading, word in READINGS.items():
            read, (first, *_, last) = f"target words read at the {word}", self.layers(reading)
            rises = last["Hits@1_low"] > first["Hits@1_high"]
            checks[f"{read}: the last layer finds more than the first (Hits@1, intervals apart)"] = rises
            checks[f"{read}: every layer finds more than the one before (MRR, Hits@1 and Hits@3)"] = self.climbs(reading)
            nearer = last["distance"] < first["distance"]
            checks[f"{read}: the last layer is nearer to the plan of embeddings than the first"] = nearer
        by_input, by_output = (self.best(reading)["layer"] for reading in READINGS)
        checks["ours (erratum 11): which layer is best depends on where a target word is read"] = by_input != by_output
        if languages == "de-en":
            most = max(self.values(reading, "Hits@1")[-1] for reading in READINGS)
            checks["the last layer aligns over 80 % of pairs (Hits@1, the better reading)"] = most > 0.8
        checks["ours: transport on embeddings finds more than nearest neighbours on them (Hits@1)"] = (
            self.vectors("transport")["Hits@1"] > self.vectors("nearest")["Hits@1"]
        )
        return checks


def _numbers(found: ByLayer) -> Numbers:
    both = {word: _at(found, reading) for reading, word in READINGS.items()}
    place, best = max(((word, at["best"]) for word, at in both.items()), key=lambda pair: pair[1]["Hits@1"])
    heads = [(word, line) for reading, word in READINGS.items() for line in found.heads(reading)]
    head_place, head = max(heads, key=lambda pair: pair[1]["Hits@1"])
    transport, nearest = (found.vectors(method) for method in ("transport", "nearest"))
    gains = [word for reading, word in READINGS.items() if found.climbs(reading)]
    return {
        **both,
        "layers": len(both["output"]["hits"]),
        "best": best,
        "best_at": place,
        "best_hits": percent(best),
        "head": head,
        "head_at": head_place,
        "head_hits": percent(head),
        "verdict": _verdict(found),
        "transport": transport,
        "transport_hits": percent(transport),
        "nearest_hits": percent(nearest),
        "gains": f"Every layer gains at the {gains[0]}" if gains else "In neither reading does every layer gain",
    }


def _at(found: ByLayer, reading: str) -> Numbers:
    """One reading: Hits@1 by layer, with deviations in words, the best layer, and the one nearest to the plan."""
    hits, deviations = (found.values(reading, name) for name in ("Hits@1", "Hits@1_std"))
    series = [f"{100 * value:.0f} ({100 * sd:.0f})" for value, sd in zip(hits, deviations, strict=True)]
    return {
        "hits": hits,
        "last": hits[-1],
        "series": series,
        "best": found.best(reading),
        "nearest": found.nearest(reading),
    }


def _verdict(found: ByLayer) -> str:
    """What became of “both metrics consistently improve with depth”."""
    best = [
        f"at the {word}, layer {found.best(reading)['layer']} is best (correlation with depth {found.trend(reading):+.1f})"
        for reading, word in READINGS.items()
    ]
    climbing = [f"at the {word}" for reading, word in READINGS.items() if found.climbs(reading)]
    end = f"every layer is better than the one before {joined(climbing)}" if climbing else "in neither does every layer gain"
    return f"Read {joined(best)}; {end}."


def _draw(found: ByLayer) -> figures.Figure:
    made, axes = figures.figure(12.2, 7.0, 2, 3, height_ratios=(1.2, 1))
    for ax, metric in zip(axes[0], METRICS, strict=True):
        _bars(ax, found, metric)
    for ax, name in zip(axes[1], LIKENESS, strict=True):
        _likeness(ax, found, name)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    more, names = axes[1, 0].get_legend_handles_labels()
    made.legend(handles + more, labels + names, loc="outside lower center", ncols=6)
    return made


def _bars(axes: Any, found: ByLayer, metric: str) -> None:
    for reading, colour, shift in zip(READINGS, COLOURS.values(), (-0.2, 0.2), strict=True):
        lines, heads = found.layers(reading), found.heads(reading)
        layers = np.array([line["layer"] for line in lines])
        label = f"read at the {READINGS[reading]}, mean of heads"
        sentences.bars(axes, layers + shift, lines, metric, 0.38, colour, label)
        best = [100 * line[metric] for line in heads]
        label = "best single head of the layer" if reading == "cross-input" else ""
        axes.plot(layers + shift, best, "D", ms=4, mfc="white", mec=figures.INK, mew=1, label=label, zorder=4)
    ot, nearest = (100 * found.vectors(method)[metric] for method in ("transport", "nearest"))
    axes.axhline(ot, color=figures.GREEN, linestyle="-", linewidth=1.3, label="OT on embeddings")
    axes.axhline(nearest, color=figures.PURPLE, linestyle=":", linewidth=1.3, label="nearest embeddings")
    axes.set(
        title=f"{metric}: best layer {_best(found, metric)}",
        xlabel="layer",
        xticks=layers,
        ylim=(0, 102),
        ylabel="per cent" if metric == "MRR" else "",
    )
    axes.grid(visible=False, axis="x")


def _likeness(axes: Any, found: ByLayer, name: str) -> None:
    for reading, colour in COLOURS.items():
        layers = [line["layer"] for line in found.layers(reading)]
        axes.plot(layers, found.values(reading, name), "o-", color=colour)
    if name == "distance":
        axes.axhline(found.layers("cross-input")[0]["uniform"], color=figures.GREY, ls="--", lw=1, label="a uniform matrix")
    title, label = LIKENESS[name]
    axes.set(title=f"{title} {_trend(found, name)}", xlabel="layer", xticks=layers, ylabel=label)
    axes.set_ylim(0, max(1.02, axes.get_ylim()[1]))


def _best(found: ByLayer, metric: str) -> str:
    """The layer with the most, for each reading: ``2 (input), 4 (output)``."""
    best = {place: max(found.layers(reading), key=lambda line: line[metric]) for reading, place in READINGS.items()}
    return ", ".join(f"{line['layer']} ({place})" for place, line in best.items())


def _trend(found: ByLayer, name: str) -> str:
    """Where a likeness goes from the first layer to the last, if both readings agree."""
    ends = [found.values(reading, name) for reading in READINGS]
    grows = {values[-1] > values[0] for values in ends}
    return "depends on the reading" if len(grows) == 2 else "grows with depth" if grows.pop() else "falls with depth"
