r"""The probability that a link is right, from its score.

A score P_ji is an entry of a transport plan, the share of a word that goes to another. It does not say how often such a
link is right. A `Curve` of two numbers does: the log odds of a link are a line in those of its score,

    log p/(1 − p) = slope · log P/(1 − P) + offset,

which rises, so that a threshold on p is one on P. CURVES has the two numbers for each method and language pair, fitted by
``bench/calibration.py``, not on the gold that its reliability table is of. docs/words.md says on what, and how far p is off.
A link that hand-made gold has as possible counts as right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from otformer.checks import choice, not_negative
from otformer.errors import ArgumentError
from otformer.words.align.aligners import RULES, links
from otformer.words.align.methods import Method
from otformer.words.align.vectors import Array
from otformer.words.text.gold import Links
from otformer.words.text.languages import LanguagePair

NEVER = 1e-6  # scores are taken to be at least this, and at most one less this


@dataclass(frozen=True)
class Curve:
    """A line between log odds."""

    slope: float
    offset: float

    def probability(self, scores: Any) -> Array:
        """The probabilities of links with these scores.

        >>> Curve(1.0, 0.0).probability([0.2, 0.7]).round(2).tolist()
        [0.2, 0.7]
        """
        return _from_odds(self.slope * log_odds(scores) + self.offset)

    def score(self, probability: float) -> float:
        """The score of a link with this probability; no score has probability 0, every score has 1.

        >>> curve = Curve(2.0, 1.0)
        >>> round(float(curve.probability(curve.score(0.3))), 6), curve.score(0.0), curve.score(1.0)
        (0.3, 0.0, 1.0)
        """
        if not 0 < probability < 1:
            return float(probability)
        return float(_from_odds((np.log(probability / (1 - probability)) - self.offset) / self.slope))


def log_odds(share: Any) -> Array:
    """log p/(1 − p), of p within NEVER and 1 − NEVER."""
    p = np.clip(np.asarray(share, dtype=np.float64), NEVER, 1 - NEVER)
    return np.asarray(np.log(p / (1 - p)))


def _from_odds(log_odds: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-log_odds)))


TRAINED = {
    2.0: Curve(1.52, 1.72),
    3.0: Curve(1.24, 0.8),
    5.0: Curve(0.91, -0.05),
}  # of HMMs that do not ship, by their price


def trained_curve(null: float) -> Curve:
    """The curve of HMMs that do not ship, joined at this price of no link, by straight lines between the prices of TRAINED.

    >>> trained_curve(4.0)
    Curve(slope=1.075, offset=0.375)
    """
    lines = np.array([(each.slope, each.offset) for each in TRAINED.values()])
    slope, offset = (round(float(np.interp(null, [*TRAINED], column)), 4) for column in lines.T)
    return Curve(slope, offset)


CURVES = {
    ("hmm", "en-fr"): Curve(1.05, 0.53),
    ("hmm", "de-en"): TRAINED[5.0],  # at its own price; docs/words.md says why
    ("attention", "en-fr"): Curve(3.41, 4.76),
    ("attention", "de-en"): Curve(2.78, 4.06),
    ("vectors", "en-fr"): Curve(1.55, 0.95),
    ("vectors", "de-en"): Curve(1.64, 1.01),
}


def curve(method: str, languages: str | LanguagePair) -> Curve:
    """The curve of a method that ships (its own name, not "auto") for a language pair."""
    return CURVES[method, str(LanguagePair.of(languages).stored)]


@dataclass(frozen=True)
class Linker:
    """Choose the reported links of a method's scores, and their probabilities.

    threshold : the least probability of a link; by default what the method asks for, or none with a rule of ``symmetrize``.
    symmetrize : a rule of `aligners.links`, by default that of the method, or "threshold" with a threshold.
    """

    method: Method
    curve: Curve
    threshold: float | None = None
    symmetrize: str | None = None

    def __post_init__(self) -> None:
        check(self.threshold, self.symmetrize)

    def links(self, scores: Array) -> Links:
        """The links (i, j) of one matrix of scores [m, n]."""
        if self.threshold is None and self.symmetrize is None:
            return self.method.links(scores)
        least = 0.0 if self.threshold is None else self.curve.score(self.threshold)
        return links(scores, self.symmetrize or "threshold", least)


def check(threshold: float | None, symmetrize: str | None) -> None:
    """Raise ArgumentError for a threshold outside 0 to 1, an unknown rule, or the rule "threshold" without one."""
    if threshold is not None and not_negative("threshold", threshold) > 1:
        raise ArgumentError("threshold", "be a probability, from 0 to 1", repr(threshold))
    if symmetrize is not None and choice("symmetrize", symmetrize, RULES) == "threshold" and threshold is None:
        raise ArgumentError("symmetrize", "come with a threshold", "'threshold' alone")
