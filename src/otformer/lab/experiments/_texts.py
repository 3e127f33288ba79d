"""Fill the sentences of experiments.toml with the numbers of a run.

``{name:format}`` stands for a number of `Outcome.numbers`, or for a constant of the experiment's module. Besides Python's
formats there are

    {share:%.0f}            per cent: 100 times the number
    {held:is|is not}        one of two words, for True and False
    {sizes:.2f}             every entry of a list, joined by ", "
    {sizes:.2f| and }       the same, joined by what follows the bar; with " and " as in "a, b and c"
    {rows:each row|; }      every entry of a list of dictionaries, by the sentence ``row`` of the same experiment

``^{…}`` and ``_{…}`` are scripts and stay as they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from string import Formatter
from typing import Any

from otformer.errors import ArgumentError

SCRIPT = re.compile(r"([\^_])\{([^{}]*)\}")


class Sentences(Formatter):
    """The sentences of an experiment and what their names stand for.

    >>> texts = {"all": "{sizes:| and } in 10^{9} layers: {rows:each row|; }", "row": "n = {n}: {share:%.0f} %, {ok:yes|no}"}
    >>> rows = [{"n": 2, "share": 0.5, "ok": True}, {"n": 3, "share": 0.25, "ok": False}]
    >>> Sentences(texts, {"sizes": (1, 2, 3), "rows": rows}).filled("all")
    '1, 2 and 3 in 10^{9} layers: n = 2: 50 %, yes; n = 3: 25 %, no'
    """

    def __init__(self, texts: Mapping[str, str], numbers: Mapping[str, Any]) -> None:
        self.texts, self.numbers = texts, numbers

    def filled(self, name: str) -> str:
        """One of the sentences."""
        return self.fill(self.texts[name])

    def fill(self, text: str) -> str:
        """Fill a text with its numbers."""
        return self.vformat(SCRIPT.sub(r"\1{{\2}}", text), (), self.numbers)

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if key not in kwargs:
            where = "in Outcome.numbers or be a constant of the module in capitals"
            raise ArgumentError(f"{key!r}, which a sentence of experiments.toml names,", f"be {where}")
        return kwargs[key]  # type: ignore[index]

    def format_field(self, value: Any, format_spec: str) -> str:
        form, _, rest = format_spec.partition("|")
        if isinstance(value, bool):
            return form if value else rest
        if form.startswith("each "):
            rows = [Sentences(self.texts, {**self.numbers, **row}).filled(form[5:]) for row in value]
            return joined(rows, rest or " ")
        if type(value) in (list, tuple, range, dict):  # not a named tuple, which may have a format of its own
            return joined([self.format_field(each, form) for each in value], rest or ", ")
        return format(100 * value, form[1:]) if form.startswith("%") else format(value, form)


def joined(parts: Sequence[str], by: str = " and ") -> str:
    """The parts in one line.

    >>> joined(["a", "b", "c"]), joined(["a", "b"], "; ")
    ('a, b and c', 'a; b')
    """
    return by.join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]) if by == " and " else parts)


def constants(module: str) -> dict[str, Any]:
    """The constants (names in capitals) of a module if it has been imported; otherwise an empty result."""
    names = vars(sys.modules[module]) if module in sys.modules else {}
    return {name: value for name, value in names.items() if name.isupper()}


def ends(values: Iterable[Any]) -> tuple[Any, Any]:
    """The least and the largest, for “0.2 to 0.5”."""
    found = list(values)
    return min(found), max(found)
