"""How the settings of aligners of one's own text were chosen, without gold of the tests; seconds and memory by size:

    OTFORMER_DATA=… python bench/own_text_settings.py --languages en-fr de-en --sizes 5000 50000 170000

trains by the command ``otformer align --train``, without naming the languages, on pairs drawn from the text that may be
trained on (words/text/training_text.py), the first 170,000 of which are mostly Tatoeba's. It prints the AER on the shipped
examples and on news (aligners_text.py) for the settings of `own_text` and for the best of a grid; with ``--gold`` that on
Hansards or RWTH, beside the shipped models.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path

import numpy as np
from aligners_text import Set, chooser, example_set, gold_set, news_set

from otformer.words.align.aligners import join, links
from otformer.words.align.methods import Hmm
from otformer.words.align.own_folder import load_aligner
from otformer.words.align.own_text import NULL, THRESHOLD
from otformer.words.text.gold import score_links
from otformer.words.text.languages import LanguagePair
from otformer.words.text.training_text import training_pairs

GRID = [*product((2.0, 3.0, 4.0, 5.0, 6.0, 7.0), (0.2, 0.3, 0.4, 0.5, 0.6))]
FIRST = 170_000  # pairs that are drawn from


def trained(text: Path, out: Path) -> str:
    """Train by the command; seconds and peak memory."""
    start = time.perf_counter()
    running = subprocess.Popen([sys.executable, "-m", "otformer", "align", "--train", str(text), "--out", str(out)])
    _, code, used = os.wait4(running.pid, 0)
    if code:
        raise ValueError(f"training on {text} ended with {code}")
    seconds = time.perf_counter() - start
    return f"{seconds:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of processors, {used.ru_maxrss / 1e6:.2f} GB"


def rates(way: Hmm, sets: Sequence[Set]) -> dict[tuple[float, float], tuple[float, float]]:
    """The AER on examples and news for every null price and threshold."""
    found = [way.directions(each.words) for each in sets]
    out = {}
    for null, threshold in GRID:
        plans = [join(A, [b.T for b in B], null) for A, B in found]
        answers = [[links(P, "threshold", threshold) for P in some] for some in plans]
        out[null, threshold] = chooser(answers[0], answers[1], sets)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--languages", nargs="+", default=["en-fr", "de-en"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[5_000, 50_000, 170_000])
    parser.add_argument("--gold", action="store_true")
    given = parser.parse_args()
    for languages in given.languages:
        text, sets = list(islice(training_pairs(languages), FIRST)), [example_set(languages), news_set(languages)]
        gold = gold_set(languages) if given.gold else None
        ways: dict[str, Hmm] = {"shipped": Hmm.shipped(LanguagePair.of(languages))} if gold else {}
        for size in given.sizes:
            drawn = sorted(random.Random(0).sample(range(len(text)), min(size, len(text))))
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "text.tsv").write_text("".join(f"{text[k].source}\t{text[k].target}\n" for k in drawn))
                used = trained(Path(folder, "text.tsv"), Path(folder, "model"))
                ways[f"{size:,}"] = way = load_aligner(Path(folder, "model"))
            found = rates(way, sets)
            best = min(found, key=lambda each: sum(found[each]))
            shown = [f"{each}: {100 * np.array(found[each])}" for each in ((NULL, THRESHOLD), best)]
            print(f"{languages} {size:,}: {used}; {shown[0]}, best {shown[1]}", flush=True)
        for name, way in ways.items() if gold else ():
            score = score_links([way.links(P) for P in way.scores(gold.words)], gold.gold)
            print(f"{languages} {name}: {gold.name} AER {100 * score.aer:.1f}", flush=True)


if __name__ == "__main__":
    main()
