"""Every experiment by name, in the order of the report."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from otformer.experiments import (
    ablation,
    beyond,
    convergence,
    depth,
    embedding_ot,
    errata,
    fox,
    general_costs,
    generalization,
    generalization_15,
    iterative,
    prompting,
    rates,
    sizes,
    sorting,
    theorem_bound,
    theorem_gd,
    trained,
    translation_attention,
    translation_attention_de,
)
from otformer.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        convergence,
        sizes,
        theorem_gd,
        theorem_bound,
        sorting,
        depth,
        rates,
        errata,
        ablation,
        general_costs,
        generalization,
        prompting,
        iterative,
        generalization_15,
        trained,
        beyond,
        fox,
        translation_attention,
        translation_attention_de,
        embedding_ot,
    )
}


MODULES = {"words": "transformers"}  # what an extra installs


def runnable() -> list[str]:
    """Names of the experiments whose extras are installed."""
    return [name for name, each in EXPERIMENTS.items() if not each.needs or find_spec(MODULES[each.needs])]


def chosen(names: Iterable[str] | None) -> list[Experiment]:
    """The experiments of these names, each once, in the order of the report; for None all whose extras are installed.

    >>> [each.name for each in chosen(["sizes", "convergence"])]
    ['convergence', 'sizes']
    """
    there = runnable()
    asked = there if names is None else list(names)
    unknown = [name for name in asked if name not in EXPERIMENTS]
    if unknown:
        raise ValueError(f"unknown experiment {unknown[0]!r}; known are {', '.join(EXPERIMENTS)}")
    for name in asked:
        if name not in there:
            raise ValueError(f"{name} needs an extra: pip install 'otformer[{EXPERIMENTS[name].needs}]'")
    return [experiment for name, experiment in EXPERIMENTS.items() if name in asked]
