"""What the experiments on words share: sentence pairs with gold, the probe of a model on them, and pictures with words.

Two corpora: the sentence pairs that ship with the package, with links made by hand, and, for ``--full``, WMT news of
OTFORMER_DATA with the word pairs of MUSE that occur in both sentences. Gold is one to one: a word with several partners
cannot have all of them at rank 1. The pairs without that rule, ``every``, are kept beside it, since the paper states none.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otformer import figures
from otformer.files import cache_folder, writable_folder
from otformer.lab.experiments.experiment import Context
from otformer.words.jobs.jobs import ChunkFolder, run_resumable, stream
from otformer.words.models.models import Model
from otformer.words.probe.probe import ProbeSettings
from otformer.words.probe.table import tabulate
from otformer.words.probe.work import ProbeWork
from otformer.words.text import examples
from otformer.words.text.dictionary import gold_pairs, muse
from otformer.words.text.gold import Gold, Link
from otformer.words.text.text import Pair, fold, news_pairs, prepare, sample, words

Array = np.ndarray[Any, np.dtype[Any]]
Table = list[dict[str, Any]]
NAMES = {"en-fr": "English–French", "de-en": "German–English"}
RED = "#C8102E"  # the paper's dots
NEWS = 10_000  # sentence pairs, as in the paper
CHUNK = 64  # sentence pairs per task of a worker


class Corpus(NamedTuple):
    """Sentence pairs, gold pairs (source word, target word) of each, how sentences have words, and what they are."""

    pairs: list[Pair]
    gold: list[list[Link]]
    every: list[list[Link]]
    by: str
    label: str

    @property
    def short(self) -> str:
        return f"{len(self.pairs):,} pairs"


def corpus(languages: str, context: Context, size: int = NEWS) -> Corpus:
    """The shipped pairs, or with ``full`` so many news pairs, drawn by the seed."""
    return news(languages, size, context.seed) if context.full else shipped(languages)


def shipped(languages: str) -> Corpus:
    """The package's own pairs, folded as the news are."""
    given = examples.examples(languages)
    pairs = [Pair(*(fold(" ".join(side)) for side in each[:2])) for each in given]
    every = [sorted(each.links) for each in given]
    return Corpus(pairs, list(map(one_to_one, every)), every, "spaces", f"{len(pairs)} shipped pairs, links made by hand")


def news(languages: str, size: int, seed: int) -> Corpus:
    """WMT news, folded, 3 to 60 words per side; gold from MUSE, of words that stand there once and have one partner there.

    Every pair: with no such rule, every place of a word with every place of every translation.
    """
    pairs = sample(prepare(news_pairs(languages)), size, seed)
    dictionary = muse(languages)
    sides = [(words(source), words(target)) for source, target in pairs]
    gold = [gold_pairs(*both, dictionary) for both in sides]
    every = [gold_pairs(*both, dictionary, repeated="all", several="all") for both in sides]
    return Corpus(pairs, gold, every, "words", f"{len(pairs):,} WMT news pairs, MUSE gold")


def one_to_one(links: Iterable[Link]) -> list[Link]:
    """The links both words of which have no other.

    >>> one_to_one({(0, 0), (1, 1), (1, 2), (2, 3)})
    [(0, 0), (2, 3)]
    """
    links = sorted(links)
    sources, targets = (Counter(link[side] for link in links) for side in (0, 1))
    return [(i, j) for i, j in links if sources[i] == targets[j] == 1]


def probe(model: Path, given: Corpus, context: Context, name: str) -> Table:
    """The table of a model on a corpus (words/probe/table.py).

    With ``full`` on several cores, and what is done is kept in the user's cache until all is: a run that was interrupted
    goes on.
    """
    work = ProbeWork(str(model), probing=ProbeSettings(by=given.by))
    items = list(work.items(given.pairs, [Gold(frozenset(gold), frozenset(gold)) for gold in given.gold]))
    done = 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        context.progress(0.95 * done / len(items))

    cores = min(4, os.cpu_count() or 1) if context.full else 1
    job = work.job(chunk=CHUNK, workers=cores)
    if not context.full:
        return tabulate(stream(job, items, tell), seed=context.seed)
    chunks = ChunkFolder(writable_folder(cache_folder()) / name)
    with chunks.held():
        table = tabulate(run_resumable(job, items, chunks, tell), seed=context.seed)
        chunks.remove()
    return table


def size_of(model: Model) -> str:
    """``4.1 M parameters, 12 layers, 5 heads``."""
    count = sum(weights.numel() for weights in model.network.parameters()) / 1e6
    return f"{count:.1f} M parameters, {model.layers} layers, {model.heads} heads"


def heatmap(axes: Any, matrix: Array, pair: tuple[Sequence[str], Sequence[str]], gold: Sequence[Link], title: str) -> None:
    """A matrix [m, n] with its words, every row scaled to its largest entry; gold pairs are dots where they are the largest
    of their row, rings elsewhere."""
    source, target = pair
    figures.heatmap(axes, matrix / np.maximum(matrix.max(1, keepdims=True), 1e-300), title)
    axes.set(aspect="auto", xlabel="", ylabel="")
    axes.set_xticks(range(len(source)), source, rotation=55, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(target)), target)
    axes.tick_params(labelsize=8)
    for i, j in gold:
        right = matrix[j, i] >= matrix[j].max() * (1 - 1e-6)  # a word that stands there twice has one vector
        axes.plot(i, j, "o", ms=5.5, mec=RED, mew=1.2, mfc=RED if right else "none")


def legend(figure: figures.Figure) -> None:
    """Below the figure: the marks of `heatmap`, which has the first axes, and the labels of the others."""
    for fill, label in ((RED, "translation, the largest entry of its row"), ("none", "translation, missed")):
        figure.axes[0].plot([], [], "o", ms=5.5, mec=RED, mew=1.2, mfc=fill, label=label)
    count = sum(len(axes.get_legend_handles_labels()[1]) for axes in figure.axes)
    figure.legend(loc="outside lower center", ncols=count if count < 6 else (count + 1) // 2)


def bars(axes: Any, x: Any, table: Table, metric: str, width: float, colour: str, label: str) -> None:
    """Bars in per cent; thin whiskers are ± the standard deviation across sentences, as in the paper, and the thick part is
    the 95 % bootstrap interval of the mean."""
    parts = ("", "_std", "_low", "_high")
    value, std, low, high = (100 * np.array([line[metric + part] for line in table]) for part in parts)
    axes.bar(x, value, width, color=colour, label=label)
    down, up = np.minimum(std, value), np.minimum(std, 100 - value)
    axes.errorbar(x, value, (down, up), fmt="none", ecolor=figures.GREY, elinewidth=0.8, capsize=2)
    axes.vlines(x, low, high, color=figures.INK, linewidth=2.4)


def percent(line: dict[str, Any], metric: str = "Hits@1") -> str:
    """The mean over sentences, its bootstrap interval and the standard deviation across sentences, the paper's error bar.

    >>> percent({"Hits@1": 0.874, "Hits@1_low": 0.869, "Hits@1_high": 0.879, "Hits@1_std": 0.21})
    '87.4 % (86.9 to 87.9, sd 21.0)'
    """
    low, high, sd = (100 * line[f"{metric}_{end}"] for end in ("low", "high", "std"))
    return f"{100 * line[metric]:.1f} % ({low:.1f} to {high:.1f}, sd {sd:.1f})"
