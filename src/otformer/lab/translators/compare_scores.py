"""What a trained variant can do (lab/translators/variants.py): one JSON line for each set of sentences.

    loss       nats per token of held-out pairs, with the whole target and from prefixes
    news       the probe on WMT news with MUSE gold: Hits@1, distance to the plan of the embeddings
    hansards   the probe on the hand-made links of the Hansards: AER of every layer, head and reading
    translate  translations of held-out and newstest2014 sentences, greedy, prefix by prefix; `bleu_of` takes their BLEU
    early      as news, for the weights of an earlier step, on fewer pairs

What is needed most comes first, in case the time runs out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otformer.lab.training_loop import LOG
from otformer.lab.translators.evaluate import bleu_of as bleu_of
from otformer.lab.translators.evaluate import every_kth, held_out
from otformer.lab.translators.networks import Translation
from otformer.lab.translators.prefixes import losses, translate_prefixes
from otformer.words.models.models import Model, load
from otformer.words.models.shipped import shipped_folder
from otformer.words.probe.probe import ProbeSettings, probe_chunk
from otformer.words.probe.table import tabulate
from otformer.words.text.dictionary import muse
from otformer.words.text.gold import read_gold
from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import Pair, data_folder, fold, news_pairs, prepare, read_pairs, sample

LANGUAGE_PAIR = "en-fr"
SCORES = "scores.jsonl"  # in the folder of a run
KEPT = ("method", "reading", "layer", "head", "sentences", "pairs", "uniform", "distance", "marginal_error", "row_entropy")
ESTIMATED = ("MRR", "Hits@1")
Line = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How many sentence pairs of each set."""

    loss: int = 200
    translate: int = 300
    hansards: int = 447
    news: int = 1000
    early: int = 300


def add(folder: Path, line: Line) -> None:
    """A line more in the scores of a run, and a word on the standard output."""
    with (folder / SCORES).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{folder.name}: {line['set']} at {time.strftime('%X')}", flush=True)


def score_shipped(out: Path, text: Path, device: str, sizes: Sizes) -> None:
    """Score the shipped translator as the run softmax-0 of ``out``: all of its steps, and a log without lines."""
    folder = out / "softmax-0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOG).write_text("step,loss,seconds\n")
    (folder / SCORES).unlink(missing_ok=True)
    about: Line = {"set": "run", "variant": "softmax", "seed": 0, "finished": True, "steps": Translation.steps}
    add(folder, about | {"done": Translation.steps, "seconds": None})
    for line in evaluate(load(shipped_folder() / LANGUAGE_PAIR, device), text, sizes):
        add(folder, line)


def evaluate(model: Model, text: Path, sizes: Sizes) -> Iterator[Line]:
    """A line for each set but ``early``."""
    yield {"set": "loss", **losses(model, held_out(text, LanguagePair.of(LANGUAGE_PAIR), sizes.loss))}
    yield {"set": "news", "table": news(model, sizes.news)}
    yield {"set": "hansards", "table": hansards(model, sizes.hansards)}
    for name, pairs in translated_sets(text, sizes.translate).items():
        yield {"set": "translate", "text": name, "made": translate_prefixes(model, [pair.source for pair in pairs])}


def translated_sets(text: Path, size: int) -> dict[str, list[Pair]]:
    """The pairs on which the model cards have BLEU: held-out text and newstest2014, ``size`` of each."""
    languages = LanguagePair.of(LANGUAGE_PAIR)
    tests = news_pairs(languages, test="newstest2014")
    return {"held-out": held_out(text, languages, size), "newstest2014": every_kth(tests, size)}


def hansards(model: Model, size: int) -> list[Line]:
    """The probe's table with AER, of the first ``size`` Hansards sentences, folded."""
    place = data_folder() / "gold_alignments" / "hansards_en-fr"
    pairs = [Pair(*map(fold, pair)) for pair in read_pairs(place / "test.en-fr.src-tgt")][:size]
    gold = read_gold(place / "test.en-fr.talp", one_based=True)[:size]
    tally = probe_chunk(model, pairs, gold=gold, settings=ProbeSettings(by="spaces"))
    return _short(tabulate([tally]), "AER", "AER_low", "AER_high")


def news(model: Model, size: int, seed: int = 0) -> list[Line]:
    """The probe's table with Hits@1, of ``size`` news pairs."""
    pairs = sample(prepare(news_pairs(LANGUAGE_PAIR)), size, seed)
    tally = probe_chunk(model, pairs, muse(LANGUAGE_PAIR))
    return _short(tabulate([tally]))


def _short(table: list[Line], *more: str) -> list[Line]:
    """The columns that are looked at, to six digits, without the plans of hidden states."""
    names = (*KEPT, *(metric + part for metric in ESTIMATED for part in ("", "_low", "_high")), *more)
    lines = [{name: line[name] for name in names} for line in table if line["reading"] != "states"]
    return [{name: round(x, 6) if isinstance(x, float) else x for name, x in line.items()} for line in lines]
