"""Labels of words, taken over to the words of the translation: spans as spans, others by the best link.

Labels are spans if all are O or begin as those of BIO (B-PER, I-PER) and BIOES or BILOU do; they come out as BIO. A span
may begin with I-. On the target a span is contiguous (`intervals`); a span without links is on no word.
Any other labels, parts of speech for instance, go by the link with the highest score; a word without links has ``_``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from otformer.words.projection.intervals import intervals
from otformer.words.text.gold import Link

OUTSIDE, NOTHING = "O", "_"
_PART = re.compile(r"([BIESLU])-(.*)", re.DOTALL)
NamedSpan = tuple[int, int, str]  # first word, the one after the last, and the name


def are_spans(labels: Sequence[str]) -> bool:
    """Whether labels are those of spans.

    >>> are_spans(["O", "B-PER"]), are_spans(["NOUN", "O"])
    (True, False)
    """
    return all(label == OUTSIDE or _PART.fullmatch(label) for label in labels)


def spans(labels: Sequence[str]) -> list[NamedSpan]:
    """The spans of labels: one begins with B, S or U, or where the name is another than before, and ends with E, L, S or U.

    >>> spans(["B-PER", "I-PER", "O", "I-LOC", "S-PER"])
    [(0, 2, 'PER'), (3, 4, 'LOC'), (4, 5, 'PER')]
    """
    found: list[NamedSpan] = []
    going = ""
    for number, label in enumerate(labels):
        match = _PART.fullmatch(label)
        part, name = (match[1], match[2]) if match else ("", "")
        if match and going == name and found and part in "IEL":
            found[-1] = (found[-1][0], number + 1, name)
        elif match:
            found.append((number, number + 1, name))
        going = name if part and part in "BI" else ""
    return found


def bio(found: Sequence[NamedSpan], size: int) -> list[str]:
    """Spans as labels of ``size`` words.

    >>> bio([(1, 3, "LOC")], 4)
    ['O', 'B-LOC', 'I-LOC', 'O']
    """
    labels = [OUTSIDE] * size
    for start, stop, name in found:
        labels[start:stop] = [f"B-{name}"] + [f"I-{name}"] * (stop - start - 1)
    return labels


def projected(labels: Sequence[str], links: Mapping[Link, float], size: int, as_spans: bool | None = None) -> list[str]:
    """The labels of ``size`` target words; ``as_spans`` says whether they are spans, None looks (`are_spans`).

    >>> projected(["O", "B-PER", "I-PER"], {(1, 2): 1.0, (2, 0): 1.0}, 3)
    ['B-PER', 'I-PER', 'I-PER']
    >>> projected(["DET", "NOUN"], {(0, 0): 0.4, (1, 0): 0.9}, 2)
    ['NOUN', '_']
    """
    if as_spans if as_spans is not None else are_spans(labels):
        return bio(projected_spans(spans(labels), links), size)
    made = [NOTHING] * size
    for i, j in sorted(links, key=lambda link: (links[link], -link[0])):
        made[j] = labels[i]  # the last that is written has the highest score, and is the first such word
    return made


def projected_spans(found: Sequence[NamedSpan], links: Mapping[Link, float]) -> list[NamedSpan]:
    """Where spans are on the target. A target word is asked for by the span with which its links have the largest sum."""
    span_of = {i: number for number, (start, stop, _) in enumerate(found) for i in range(start, stop)}
    sums: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for i, j in sorted(links):
        if i in span_of:
            sums[j][span_of[i]] += links[i, j]
    wanted: dict[int, list[int]] = {number: [] for number in range(len(found))}
    for j in sorted(sums):
        wanted[max(sums[j], key=lambda number: sums[j][number])].append(j)
    return sorted((*place, found[number][2]) for number, place in intervals(wanted).items())
