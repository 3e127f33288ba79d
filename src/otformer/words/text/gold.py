"""Word alignments: Pharaoh, talp and NAACL lines, matrices as text, and scores against gold made by hand.

A link (i, j) joins word i of the source to word j of the target, counted from 0. In a line ``0-0 2p1`` the first link is
sure, the second only possible. Every sure link is possible too: S ⊆ P.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otformer.errors import ArgumentError
from otformer.show.look import printable
from otformer.statistics import bootstrap
from otformer.words.text.text import read_lines

Link = tuple[int, int]
Links = frozenset[Link]
_LINK = re.compile(r"(\d{1,9})([-p])(\d{1,9})", re.ASCII)


class Gold(NamedTuple):
    """Sure links S and possible links P ⊇ S of a sentence pair."""

    sure: Links
    possible: Links


def parse_links(line: str, one_based: bool = False, name: str = "the line") -> Gold:
    """A line of Pharaoh (``i-j``) or talp (``i-j`` sure, ``ipj`` possible); ``name`` is what errors call it.

    >>> gold = parse_links("1-1 2p1 3-2", one_based=True)
    >>> sorted(gold.sure), sorted(gold.possible)
    ([(0, 0), (2, 1)], [(0, 0), (1, 0), (2, 1)])
    """
    sure, possible = set(), set()
    for word in line.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise ArgumentError(name, "hold links like 0-1 or 2p3", repr(word[:30]))
        i, j = int(match[1]) - one_based, int(match[3]) - one_based
        if min(i, j) < 0:
            raise ArgumentError(name, "count from 1 with one_based", repr(word))
        possible.add((i, j))
        if match[2] == "-":
            sure.add((i, j))
    return Gold(frozenset(sure), frozenset(possible))


def read_gold(file: str | Path, one_based: bool = False, option: str = "one_based=True") -> list[Gold]:
    """Read the sure and possible links of every line of a file (or gz); an empty line has none.

    Warns if index 0 never occurs: such files (Hansards and RWTH, for example) count from 1; ``one_based=True`` reads them.
    The warning names the ``option`` to use.
    """
    lines = [parse_links(line, one_based, f"{file} line {number}") for number, line in enumerate(read_lines(file), 1)]
    links = [link for gold in lines for link in gold.possible]
    if links and not one_based and not any(0 in link for link in links):
        warnings.warn(f"no index 0 in the file {file}: if it counts from 1, use {option}", stacklevel=2)
    return lines


def check_links(number: int, links: Gold, n: int, m: int) -> None:
    """Raise ArgumentError if a gold link lies outside the sentences, of n and m words."""
    for i, j in links.sure | links.possible:
        if not (i < n and j < m):
            raise ArgumentError(f"gold of pair {number}", f"have source word < {n} and target word < {m}", (i, j))


def pharaoh(links: Iterable[Link]) -> str:
    """Links as a Pharaoh line, in order.

    >>> pharaoh({(1, 0), (0, 2)})
    '0-2 1-0'
    """
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def naacl(number: int, links: Mapping[Link, float], scores: bool = False) -> str:
    """Links of sentence pair ``number`` as lines of the shared tasks of 2003 and 2005, words counted from 1.

    With scores, S (sure) where a link is more probable than not, P (possible) elsewhere, and the probability.

    >>> naacl(7, {(0, 2): 0.9, (1, 0): 0.4}, scores=True).splitlines()
    ['7 1 3 S 0.90', '7 2 1 P 0.40']
    """
    ends = {link: f" {'S' if p > 0.5 else 'P'} {p:.2f}" if scores else "" for link, p in links.items()}
    return "\n".join(f"{number} {i + 1} {j + 1}{end}" for (i, j), end in sorted(ends.items()))


def grid(source: Sequence[str], target: Sequence[str], scores: Any) -> list[str]:
    """A matrix [m, n] as text: a row per target word, a column per source word; words as a terminal may show them.

    >>> grid(["the", "cat"], ["chat"], [[0.012, 0.98]])
    ['       the   cat', 'chat  0.01  0.98']
    """
    source, target = list(map(printable, source)), list(map(printable, target))
    left, wide = max(map(len, target), default=0), [max(4, len(word)) for word in source]
    lines = [" " * left + "".join(f"  {word:>{width}}" for word, width in zip(source, wide, strict=True))]
    for word, row in zip(target, np.asarray(scores).tolist(), strict=True):
        lines.append(f"{word:<{left}}" + "".join(f"  {x:>{width}.2f}" for x, width in zip(row, wide, strict=True)))
    return lines


@dataclass(frozen=True)
class AlignmentScore:
    """Scores of links A against gold S ⊆ P, summed over all sentences; each is a share, not a percentage.

    precision = |A∩P| / |A|,   recall = |A∩S| / |S|,   f1 = 2 precision recall / (precision + recall),
    aer = 1 − (|A∩S| + |A∩P|) / (|A| + |S|)         (Och and Ney 2003; lower is better).

    Nothing said, or nothing to find, is no mistake: 0/0 counts as 1 in precision and recall, and aer is then 0.

    counts : [sentences, 4], |A∩S|, |A∩P|, |A|, |S| of each.
    """

    aer: float
    precision: float
    recall: float
    f1: float
    counts: np.ndarray[Any, np.dtype[np.int64]]

    def interval(self, level: float = 0.95, draws: int = 1000, seed: int = 0) -> tuple[float, float]:
        """Bootstrap interval of the AER: sentences are drawn again, with replacement."""
        return bootstrap(self.counts, lambda sums: rates(sums)[0], level, draws, seed)


def score_links(predicted: Sequence[Iterable[Link]], gold: Sequence[Gold]) -> AlignmentScore:
    """AER, precision, recall and F1 of predicted links, one set per sentence.

    Further sentences on one side change nothing where they are empty, as the blank last line of some gold files; anything
    else is an error.

    >>> score = score_links([{(0, 0), (1, 1)}], [parse_links("0-0 1p1 2-2")])
    >>> score.precision, score.recall, score.aer     # 1 − (1 + 2)/(2 + 2)
    (1.0, 0.5, 0.25)
    """
    shared = min(len(predicted), len(gold))
    if any(frozenset(links) for links in predicted[shared:]) or any(sure or possible for sure, possible in gold[shared:]):
        raise ArgumentError("predicted and gold", "have as many sentences", f"{len(predicted)} and {len(gold)}")
    counts = np.zeros((shared, 4), dtype=np.int64)
    for k, (links, (sure, possible)) in enumerate(zip(predicted, gold, strict=False)):
        A, P = frozenset(links), possible | sure
        counts[k] = len(A & sure), len(A & P), len(A), len(sure)
    aer, precision, recall, f1 = map(float, rates(counts.sum(0)))
    return AlignmentScore(aer, precision, recall, f1, counts)


def rates(sums: Any) -> tuple[Any, Any, Any, Any]:
    """aer, precision, recall, f1 of sums [..., 4]."""
    in_sure, in_possible, said, sure = np.moveaxis(np.asarray(sums, dtype=float), -1, 0)

    def share(part: Any, whole: Any) -> Any:
        return np.where(whole > 0, part / np.maximum(whole, 1), 1.0)

    precision, recall = share(in_possible, said), share(in_sure, sure)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
    return 1 - share(in_sure + in_possible, said + sure), precision, recall, f1
