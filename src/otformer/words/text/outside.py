"""Text from outside: how long a sentence pair may be, and words as a terminal may show them."""

from __future__ import annotations

MOST_SCORES = 10**6  # of a sentence pair: a thousand words on each side
MOST_WORDS = 20_000  # of a sentence whose translation has few
WORD_CUT = 24  # characters of a word that are shown


def check_size(n: int, m: int, name: str, most: int = MOST_SCORES) -> None:
    """That a pair of n and m words is one of sentences, for which there is memory; ``name`` is what errors call it."""
    if n * m > most or max(n, m) > MOST_WORDS:
        limits = f"at most {MOST_WORDS:,} words each and {most:,} scores a pair"
        raise ValueError(f"{name} must be of sentences, {limits}, got {n:,} × {m:,} words")


def visible(text: str) -> str:
    """The text with nothing in it that a terminal obeys: what is not printable becomes U+FFFD.

    >>> visible("ca" + chr(27) + "[2Jt")
    'ca�[2Jt'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def printable(word: str) -> str:
    """The word, `visible`, cut to WORD_CUT characters.

    >>> printable("Donaudampfschifffahrtsgesellschaft")
    'Donaudampfschifffahrtsg…'
    """
    plain = visible(word[: WORD_CUT + 1])
    return plain if len(plain) <= WORD_CUT else plain[: WORD_CUT - 1] + "…"
