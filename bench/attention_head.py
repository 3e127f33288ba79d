"""What method ``attention`` costs, on news sentences of OTFORMER_DATA, one after the other in one process:

    OTFORMER_DATA=… OMP_NUM_THREADS=1 python bench/attention_head.py --languages en-fr --pairs 999

prints CPU milliseconds per sentence pair of the HMMs; of the head as it ships, whose decoder ends at the attention that is
read, 8 pairs at a time; of the same head in the whole translator, 32 at a time; and the largest difference of the two heads.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

from otformer.words.align.attention_head import AttentionHead
from otformer.words.align.methods import HEADS, method
from otformer.words.models.attention import Array, read
from otformer.words.models.models import load
from otformer.words.models.shipped import shipped_folder
from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import Pair, fold, news_pairs, sample, words


def timed(name: str, pairs: int, make: Callable[[], list[Array]]) -> list[Array]:
    start = time.process_time()
    made = make()
    print(f"{name}: {1000 * (time.process_time() - start) / pairs:.1f} ms per pair", flush=True)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--languages", choices=list(HEADS), default="en-fr")
    parser.add_argument("--pairs", type=int, default=999)
    given = parser.parse_args(arguments)
    stored = str(LanguagePair.of(given.languages).stored)
    split = [(words(fold(e)), words(fold(f))) for e, f in sample(news_pairs(stored), given.pairs, seed=5)]
    text = [Pair(" ".join(e), " ".join(f)) for e, f in split]
    hmm, whole, (layer, head) = method("hmm", stored), load(shipped_folder() / stored), HEADS[stored]
    cut = AttentionHead.of(shipped_folder() / stored, layer, head)

    def all_layers() -> list[Array]:
        found = read(whole, text, by="spaces", readings=["cross-input"], how="mass", normalise=True)
        return [reading.matrices["cross-input"][layer - 1, head - 1] for reading in found]

    cut.attention(split[:16])
    timed("HMMs, joined", given.pairs, lambda: hmm.scores(split))
    short = timed("head, nothing after it", given.pairs, lambda: cut.attention(split))
    long = timed("head, whole translator", given.pairs, all_layers)
    worst = max(np.nanmax(np.abs(a - b), initial=0.0) for a, b in zip(short, long, strict=True))
    print(f"largest difference of the heads' attention: {worst:.1e}")


if __name__ == "__main__":
    main()
