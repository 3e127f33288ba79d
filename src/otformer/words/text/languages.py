"""The two languages of a text, source first; data are stored once per pair of languages, and serve both directions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from otformer import checks

STORED = ("en-fr", "de-en")
LANGUAGES = ("en-fr", "fr-en", "de-en", "en-de")
CODES = {"en": "eng", "fr": "fra", "de": "deu"}  # ISO 639-3, as in the names of test sets


UNKNOWN = "und-und"  # ISO 639-2's "undetermined"


@dataclass(frozen=True)
class LanguagePair:
    """Source and target language.

    >>> pair = LanguagePair.of("fr-en")
    >>> pair.source, str(pair.reversed), str(pair.stored), pair.exchanged, pair.codes, pair.foreign
    ('fr', 'en-fr', 'en-fr', True, ('fra', 'eng'), 'fr')
    """

    source: str
    target: str

    @classmethod
    def of(cls, languages: str | LanguagePair) -> LanguagePair:
        """The pair of this name, one of LANGUAGES."""
        if isinstance(languages, LanguagePair):
            return languages
        if two_codes(languages) and languages not in LANGUAGES:
            advice = "other languages need a model of your own text: otformer align --train"
            raise checks.ArgumentError("languages", f"be one of {', '.join(LANGUAGES)}", repr(languages), advice)
        return cls(*checks.choice("languages", languages, LANGUAGES).split("-"))

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def reversed(self) -> LanguagePair:
        """The same languages with the target first."""
        return LanguagePair(self.target, self.source)

    @property
    def exchanged(self) -> bool:
        """Whether what is stored has the target first."""
        return str(self) not in STORED

    @property
    def stored(self) -> LanguagePair:
        """The pair in the order in which it is stored."""
        return self.reversed if self.exchanged else self

    @property
    def codes(self) -> tuple[str, str]:
        """ISO 639-3 codes of source and target."""
        return CODES[self.source], CODES[self.target]

    @property
    def foreign(self) -> str:
        """The language that is not English."""
        return self.target if self.source == "en" else self.source


def two_codes(languages: object) -> bool:
    """Whether this is the name of a pair, of any languages.

    >>> two_codes("fi-en"), two_codes("finnish")
    (True, False)
    """
    return isinstance(languages, str) and re.fullmatch("[a-z]{2,8}-[a-z]{2,8}", languages) is not None


def any_languages(languages: str) -> LanguagePair:
    """Two languages by codes such as "fi-en", whether or not the package has data of them."""
    if not two_codes(languages):
        raise checks.ArgumentError("languages", "be two codes such as fi-en, source first", repr(languages))
    return LanguagePair(*languages.split("-"))
