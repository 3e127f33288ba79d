"""Every experiment of experiments.toml, in the order of the report.

Nothing is imported until an experiment runs, so that listing them costs nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import fields
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from otformer.errors import ArgumentError
from otformer.lab.experiments.experiment import Context, Experiment, Outcome

REQUIRED = "name", "title", "claim"  # keys of an entry; its sentences are those of `experiment.SENTENCES`
VERSIONS = "paper", "author"  # of the paper: the places of arXiv, or those of the final one


def _experiment(part: str, row: dict[str, Any], texts: dict[str, str]) -> Experiment:
    """Make an experiment of an entry. Its function, ``module:function`` or its own `run`, is imported when it runs."""
    if lacking := [key for key in REQUIRED if key not in row]:
        entry = f"the entry {row.get('name', '')!r} of experiments.toml"
        raise ArgumentError(entry, f"have {', '.join(REQUIRED)}", f"none for {', '.join(lacking)}")
    name = row["name"]
    module, _, function = row.pop("run", f"{name.replace('-', '_')}:run").partition(":")
    place = f"{__package__}.{module}"

    def run(context: Context) -> Outcome:
        measured: Outcome = getattr(import_module(place), function)(context)
        return measured

    row.setdefault("source", f"paper, {row.get('shows')}")
    return Experiment(run=run, texts=texts, module=place, part=part, **row)


def _read() -> Iterator[Experiment]:
    """Every experiment of the file. What is no field of `Experiment` is a sentence."""
    known = {field.name for field in fields(Experiment)} - {"texts"} | {"run"}
    texts: dict[str, dict[str, str]] = {}
    for part, rows in tomllib.loads(Path(__file__).with_name("experiments.toml").read_text(encoding="utf-8")).items():
        for row in rows:
            own = {key: text for key, text in row.items() if key not in known}
            sentences = texts[own["texts"]] if "texts" in own else own  # those of another, or its own
            yield (made := _experiment(part, {key: row[key] for key in row if key in known}, sentences))
            texts[made.name] = sentences


EXPERIMENTS: dict[str, Experiment] = {each.name: each for each in _read()}


def listing() -> list[tuple[str, str, int, str]]:
    """Name, place in the paper, seconds at the default size and title of every experiment.

    >>> listing()[0]
    ('fox', 'figure 1', 4, 'Attention on the fox pair, beside transport')
    """
    return [(each.name, each.shows, each.seconds, each.title) for each in EXPERIMENTS.values()]


def left_out() -> dict[str, str]:
    """The experiments that cannot run here, each with the module that it needs."""
    return {name: each.needs for name, each in EXPERIMENTS.items() if each.needs and not find_spec(each.needs)}


def chosen(names: Iterable[str] | None, version: str = "paper") -> list[Experiment]:
    """The experiments of these names, each once, in the order of the report; for None all that can run here.

    A name may be a place in the paper: ``figure-3``, ``fig3``, ``figure-2`` (its three parts), ``fig2.1``, ``theorem-3.1``.
    With the version ``author`` places are those of the final version, as the author's notebooks run them.

    >>> [each.name for each in chosen(["sizes", "fig3", "figure-2"])]
    ['generalization', 'prompting', 'iterative', 'convergence', 'sizes']
    """
    missing = left_out()
    if names is None:
        return [each for each in EXPERIMENTS.values() if each.name not in missing]
    if version not in VERSIONS:
        raise ArgumentError("--as", f"be one of {', '.join(VERSIONS)}", repr(version))
    asked = {found for name in names for found in _named(name, version)}
    for name in sorted(asked & set(missing)):
        raise ValueError(f"{name} needs {missing[name]}, which is not installed: pip install {missing[name]}")
    return [each for each in EXPERIMENTS.values() if each.name in asked]


def _named(name: str, version: str) -> list[str]:
    """The experiment of that name, or those at that place in the paper; for figure 2 all of its parts."""
    if name in EXPERIMENTS:
        return [name]
    wanted = _place(name)
    if version == "author":
        known = [figure for each in EXPERIMENTS.values() for figure in each.author]
        found = [each.name for each in EXPERIMENTS.values() if wanted and wanted in map(_place, each.author)]
        if found:
            return found
        raise ArgumentError("name", f"be one of {', '.join(known)} with --as author", repr(name))
    places = {each.name: _place(each.shows) for each in EXPERIMENTS.values()}
    found = [each for each, place in places.items() if wanted and place[: len(wanted)] == wanted]
    if found:
        return found
    aliases = {shows.replace(" (", ".").strip(")").replace(" ", "-") for _, shows, *_ in listing() if _place(shows)}
    near = get_close_matches(name.lower(), [*EXPERIMENTS, *sorted(aliases)], cutoff=0.7)
    hint = f"did you mean {', '.join(near)}?" if near else f"known are {', '.join(EXPERIMENTS)}"
    raise ValueError(f"unknown experiment {name!r}; {hint}")


def _place(text: str) -> tuple[str, ...]:
    """A place in the paper as its kind and its numbers: ``("figure", "2", "1")`` for fig2.1; empty for anything else."""
    found = re.fullmatch(r"(fig|thm|theo|sec)[a-z]*[\W_]*(\d[\d\W_]*)", text.lower())
    return (found[1].replace("theo", "thm"), *re.findall(r"\d+", found[2])) if found else ()
