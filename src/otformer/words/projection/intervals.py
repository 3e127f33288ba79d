"""The rule by which things of the source become intervals of the target that do not overlap.

Each thing (an element among its siblings, a named entity) asks for the target units that are linked with its own words. It
takes all from the first of them to the last, with what nobody asked for between them, unless a unit there belongs to another
thing. Then it takes the stretch between units of others that has the most of its own, the first of such. Those with most
units choose first; what one asked for and did not take is free for those after it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Thing = TypeVar("Thing", bound=Hashable)
Interval = tuple[int, int]  # first unit, and the one after the last


def intervals(wanted: Mapping[Thing, Sequence[int]]) -> dict[Thing, Interval]:
    """An interval for every thing that asks for units (in order; each unit is asked for once), none of them overlapping.

    >>> intervals({"a": [0, 2], "b": [4]})
    {'a': (0, 3), 'b': (4, 5)}
    >>> intervals({"a": [0, 2, 3], "b": [1, 4]})                      # a cannot have 0 and 2 with b's 1 between
    {'a': (2, 4), 'b': (1, 2)}
    """
    owner = {unit: thing for thing, units in wanted.items() for unit in units}
    found: dict[Thing, Interval] = {}
    for thing in sorted(wanted, key=lambda each: -len(wanted[each])):
        units = wanted[thing]
        if not units:
            continue
        first, last = _stretch(thing, units, owner)
        for unit in units:
            del owner[unit]
        owner.update(dict.fromkeys(range(first, last + 1), thing))
        found[thing] = (first, last + 1)
    return found


def _stretch(thing: Thing, units: Sequence[int], owner: Mapping[int, Thing]) -> Interval:
    """The first and the last unit of the stretch with most units of a thing."""
    runs, before = [[units[0]]], units[0]
    for unit in units[1:]:
        if any(owner.get(between, thing) != thing for between in range(before + 1, unit)):
            runs.append([])
        runs[-1].append(unit)
        before = unit
    best = max(runs, key=len)
    return best[0], best[-1]
