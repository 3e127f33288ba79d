"""Attention of a model on sentence pairs as one HTML page: every layer and head, beside the plan of its embeddings.

The page opens without a network. Matrices travel inside it as whole numbers of 8 bits, each row scaled to sum to one (an
entry is k/255, so to 0.002); distances and shares in units of 1e-4, computed before that rounding. Nothing from outside, be
it a word or the model's name, becomes markup: it is JSON with <, > and & escaped, put on the page as text, and the policy of
the page lets no script run but the one whose hash it names, and nothing be fetched. A sum of the data (Adler-32) stands
beside them: a page that a copy has damaged says so, and draws nothing.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from otformer import checks
from otformer._version import __version__
from otformer.show import look
from otformer.words.models.attention import readings_of
from otformer.words.models.models import Model
from otformer.words.probe.figure import LABELS
from otformer.words.probe.one_pair import SAYS, PairProbe, look_at_each, opened
from otformer.words.probe.probe import LIKENESS, Array, ProbeSettings
from otformer.words.text.gold import Gold
from otformer.words.text.text import Given, Pair, as_pair, words

PARTS = ("page.html", "page_drawing.js", "page_controls.js")
FORMAT = 1  # of the data inside a page; the script reads this one only
LARGEST_PAGE = 20_000_000  # bytes
PAIR_BYTES = 1500  # most that names of fields and the verdict of a pair take
MOST_PAIRS = LARGEST_PAGE // PAIR_BYTES
TOP = 255  # the whole number that stands for 1
UNIT = 1e-4  # of distances and shares
NUMBERS = ("distance", "distance_states", "marginal_error", "row_entropy")  # of `LIKENESS`, and the share
NOTES = {
    "cross-input": "a target word is read where the decoder takes it as input",
    "cross-output": "a target word is read one step earlier, where the decoder has it as output",
    "target-source": "target words attend to source words, both in one input",
    "source-target": "source words attend to target words, both in one input; drawn with target words in rows all the same",
    "input": "a target word is read where the decoder takes it as input, after the source in one prompt",
    "output": "a target word is read one step earlier, where the decoder has it as output",
}


@dataclass(frozen=True)
class ProbePage:
    """A page made by `show`: ``save`` writes it, a notebook shows it.

    probes : what it shows of each sentence pair (`PairProbe`).   html : the page.
    """

    name: str
    probes: tuple[PairProbe, ...] = field(repr=False)
    html: str = field(repr=False)

    def __repr__(self) -> str:
        count = f"{len(self.probes)} sentence pair{'s' if len(self.probes) > 1 else ''}"
        return f"ProbePage({self.name}, {count}, {in_bytes(len(self.html.encode()))}: save(file) writes it)"

    def summary(self) -> str:
        """How many of the pairs are transport, and how many are not."""
        count = Counter(probe.kind for probe in self.probes)
        return "; ".join(f"{text}: {count[kind]} of {len(self.probes)} pairs" for kind, text in SAYS.items() if count[kind])

    def save(self, file: str | Path) -> Path:
        """Write the page, whole or not at all; the name must end in .html. Returns its path."""
        return look.write_page("file", file, self.html)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, from which it reaches nothing of the notebook."""
        frame = 'sandbox="allow-scripts" style="width:100%;height:48rem;border:0"'
        return f'<iframe title="attention of {escape(self.name)}" {frame} srcdoc="{escape(self.html)}"></iframe>'


def show(
    model: Model | str | Path,
    pairs: str | Pair | Iterable[Given],
    gold: Sequence[Gold] | None = None,
    settings: ProbeSettings | None = None,
    device: str = "cpu",
) -> ProbePage:
    """Attention between the words of sentence pairs, every layer and head, beside the transport plan of the embeddings.

    For attention A [m, n], rows scaled to sum to one, and the plan P [m, n] of mass 1 for the cost 2 − 2 cos between the
    words' embeddings with entropy λ = settings.reg, the page has ½ Σ |A_ij/m − P_ij| for every layer and head (`Likeness`).

    Parameters
    ----------
    model : Model, str or Path
        A shipped model (en-fr, de-en, bert-en-fr), a folder, or a hub name: encoder–decoder, encoder or decoder.
    pairs : str, Pair, or a list of str or (str, str)
        ``source ||| target`` or (source, target); pairs with a side without words are left out.
    gold : list of Gold, optional
        Manual links of each pair, outlined on the page.
    settings : ProbeSettings, optional
        The way of reading (`by`, `readings`, `how`, `template`) and λ.
    device : str
        "cpu" or "cuda".

    Returns
    -------
    ProbePage
        ``save("page.html")`` writes it; a notebook displays it. Raises ValueError before any computation if the page would
        exceed 20 MB.

    Examples
    --------
    >>> import pytest; _ = pytest.importorskip("transformers")
    >>> page = show("en-fr", "the black cat ||| le chat noir")
    >>> page.probes[0].kind
    'towards'
    """
    s = ProbeSettings() if settings is None else settings
    listed = [pairs] if isinstance(pairs, str | Pair) else list(islice(pairs, MOST_PAIRS + 1))
    if len(listed) > MOST_PAIRS:
        raise checks.ArgumentError("pairs", f"be at most {MOST_PAIRS} on a page", "more", "show fewer")
    if gold is not None and len(gold) != len(listed):
        raise checks.ArgumentError("gold", f"have links for each of {len(listed)} pairs", len(gold))
    loaded = opened(model, device)
    given = [as_pair(pair) for pair in listed]
    split = [tuple(words(side, s.by) for side in pair) for pair in given]
    there = [k for k, both in enumerate(split) if all(both)]
    if not there:
        raise checks.ArgumentError("pairs", "have one with words on both sides", f"{len(listed)} without")
    _check_size(loaded, [split[k] for k in there], s)
    links = None if gold is None else [gold[k] for k in there]
    probes = tuple(look_at_each(loaded, [given[k] for k in there], links, s))
    name = Path(loaded.name).name if Path(loaded.name).is_dir() else loaded.name
    lost = [sum(map(len, split[k])) - len(p.source_words) - len(p.target_words) for k, p in zip(there, probes, strict=True)]
    return ProbePage(name, probes, page(name, _data(loaded, name, s, probes, lost)))


def _data(model: Model, name: str, s: ProbeSettings, probes: Sequence[PairProbe], lost: Sequence[int]) -> dict[str, Any]:
    """What the page's script reads; ``lost`` says how many words of each pair are left out."""
    return {
        "format": FORMAT,
        "by": f"otformer {__version__}",
        "model": name,
        "kind": model.kind,
        "layers": model.layers,
        "heads": model.heads,
        "reg": s.reg,
        "top": TOP,
        "unit": UNIT,
        "says": SAYS,
        "readings": [[each, LABELS[each], NOTES[each]] for each in readings_of(model, s.readings)],
        "pairs": [_packed_pair(probe, gone) for probe, gone in zip(probes, lost, strict=True)],
    }


def in_bytes(size: int) -> str:
    """The size of a file in the unit that suits it.

    >>> in_bytes(48_900), in_bytes(999_999), in_bytes(2_340_000)
    ('49 KB', '1.0 MB', '2.3 MB')
    """
    return f"{size / 1e3:.0f} KB" if size < 999_500 else f"{size / 1e6:.1f} MB"


def _check_size(model: Model, split: Sequence[Sequence[list[str]]], s: ProbeSettings) -> None:
    """Refuse a page over LARGEST_PAGE, by a bound on its bytes that needs no attention."""
    every = len(readings_of(model, s.readings)) * model.layers * (model.heads + 1)
    limit = model.limit or 10**9
    size = len(page("", {}).encode())
    for k, both in enumerate(split):
        n, m = (min(len(side), limit) for side in both)
        # 4 characters for 3 entries; 6 for a number and its comma; 12 for a link
        own = 4 * (every + 1 + model.layers) * n * m // 3 + 6 * (len(NUMBERS) + 1) * every + 12 * n * m + PAIR_BYTES
        size += own + len(look.script_json(both).encode())
        if size > LARGEST_PAGE:
            fits = f"the first {k} of {len(split)} pairs fit: show fewer" if k else "show shorter sentences"
            where = f"pair {k + 1}, of {n} × {m} words in {model.layers} layers of {model.heads} heads"
            takes = f"{where}, takes {in_bytes(own)}; {fits}, or fewer readings"
            raise checks.ArgumentError("pairs", f"fit on a page of {LARGEST_PAGE // 10**6} MB", "more", takes)


def _packed_pair(probe: PairProbe, lost: int) -> dict[str, Any]:
    """What the page has of a pair; numbers by layer and head, one list per reading."""
    places = {name: LIKENESS.index(name) for name in NUMBERS}
    numbers = {name: [_whole(alike[..., k]) for alike in probe.likeness.values()] for name, k in places.items()}
    return numbers | {
        "source": probe.source_words,
        "target": probe.target_words,
        "lost": lost,
        "attention": [_packed(probe.scaled(name)) for name in probe.attention],
        "plans": _packed(len(probe.target_words) * probe.plans),
        "share": [_whole(share) for share in probe.share.values()],
        "uniform": _whole(np.array([probe.nearest["uniform"]]))[0],
        "gold": sorted(probe.gold),
        "kind": probe.kind,
        "verdict": probe.verdict(),
        "nearest": [[*probe.attention].index(probe.nearest["reading"]), probe.nearest["layer"]],
    }


def _packed(A: Array) -> str:
    """Entries in [0, 1] as whole numbers of 8 bits, base64."""
    return base64.b64encode(np.rint(TOP * A.clip(0, 1)).astype(np.uint8).tobytes()).decode("ascii")


def _whole(x: Array) -> list[int]:
    return [int(value) for value in np.rint(x / UNIT).ravel()]


def page(title: str, data: dict[str, Any]) -> str:
    """The page, as text."""
    template, *scripts = (look.resource("words", "probe", name) for name in PARTS)
    script, text = "".join(scripts), look.script_json(data)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    parts = {"HASH": digest, "SCRIPT": script, "DATA": text, "SUM": str(zlib.adler32(text.encode()))}
    return look.filled(template, TITLE=escape(title), **parts)
