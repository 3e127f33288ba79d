"""Every experiment: its place in the paper, its claim and about how long it takes, in the order of the report.

Nothing is imported until an experiment runs, so that listing them costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec

from otformer.experiments.experiment import Context, Experiment, Outcome
from otformer.extras import install

MODULES = {"words": "transformers"}  # extra of the package -> a module that it installs


def _experiment(
    name: str, shows: str, seconds: int, title: str, claim: str, source: str = "", needs: str = "", function: str = ""
) -> Experiment:
    """An experiment whose function is imported when it runs: ``module:function``, or `run` of the module of its name."""
    module, _, attribute = (function or f"{name.replace('-', '_')}:run").partition(":")
    place = f"otformer.experiments.{module}"

    def run(context: Context) -> Outcome:
        measured: Outcome = getattr(import_module(place), attribute)(context)
        return measured

    return Experiment(name, title, source or f"paper, {shows}", claim, run, shows, seconds, needs, place)


# fmt: off
_ALL = (
    _experiment("convergence", "figure 3", 4, "Attention converges to the plan",
        "Attention matrices of layers 1, 300 and 600 converge to the regularised transport plan P*_λ."),
    _experiment("sizes", "figure 4", 1, "The same weights for every n",
        "With unchanged weights, layer 2000 solves the problem for n = 8 and for n = 4."),
    _experiment("theorem-gd", "theorem 3.1", 11, "A layer is a step of gradient descent on the dual",
        "There are weights, independent of the input and of n, for which every layer's u and v are those of gradient "
        "descent on the dual objective."),
    _experiment("theorem-bound", "theorem 3.2", 10, "The convergence bounds, where they say something",
        "The best distance to P*_λ up to layer ℓ, in Hilbert's projective metric μ, is O(n^{3/2} e^{1/λ}/√ℓ) (main "
        "text), at most 36 √n e^{1.5 r/λ}/(√ℓ (1−η)) from ℓ ≥ 64 n e^{3r/λ} r on (appendix).",
        "paper, theorem 3.2 and its formal version"),
    _experiment("sorting", "section 3", 10, "Sorting with frozen weights",
        "Transformers sort lists of varying length without any parameter adjustment, up to an error that vanishes with "
        "depth. We ask for more: exact order, one network, at most 300 layers, up to n = 1000.",
        "paper, section 3, “An application of the last theorem”"),
    _experiment("bias", "section 3", 10, "What λ costs: the plan, the map and the sorting error",
        "“Transformer can sort with an error that vanishes with λ”, and P*_λ approximates P*. How fast? We predict "
        "e^{−ρ/λ} for the plan, ρ the least increase of the cost per point moved, and (π²/6)(n−1)n²λ² for random lists.",
        "paper, section 3, “An application of the last theorem”, sections 1.3, 2.1 and abstract"),
    _experiment("exact", "section 3", 18, "From layers to the exact optimum",
        "“A sufficiently deep transformer can approximate solution of OT for broad choice of n without changes in "
        "parameters.” How deep, and with which λ, until its arg-max is the optimal permutation, and until 12 pairs per "
        "point contain it?",
        "paper, section 3, after theorem 3.2; the project"),
    _experiment("sketch", "figure 8", 6, "The proof's sketch, drawn from data",
        "Layers run into a small neighbourhood of the doubly stochastic matrices; from there a hypothetical run of Sinkhorn "
        "contracts to the minimiser, so the neighbourhood is near it.",
        "paper, appendix D and figure 8"),
    _experiment("relaxation", "section 2.1", 2, "The linear program, and ties",
        "The relaxation to doubly stochastic matrices has the same solution as the problem over permutations, P̂ = P*, and "
        "P*_λ approximates it.",
        "paper, section 2.1"),
    _experiment("sinkhorn-attention", "section 2.2", 6, "Sinkhorn attention beside softmax layers",
        "“Standard self-attention layers cannot directly implement Sinkhorn’s iteration”, so others propose Sinkhorn "
        "attention; the paper asks whether the standard one can do it. In how many layers and passes, beside it?",
        "paper, section 2.2"),
    _experiment("linear-attention", "section 3", 8, "Linear attention beside softmax attention",
        "Linear attention is suited to quadratic objectives; softmax attention is better aligned with token matching.",
        "paper, section 3, after theorem 3.1"),
    _experiment("depth", "section 5", 33, "Layers to an error, beside Sinkhorn",
        "The paper proves O(ε⁻²) layers and asks whether O(log 1/ε), Sinkhorn's, can be had. With other steps in the same "
        "architecture it can, and with the square root of Sinkhorn's condition number.",
        "paper, section 5, “Depth efficient guarantees”"),
    _experiment("two-point", "section 5", 4, "Two points on which one λ is slow and annealing is not",
        "“Only O(log(1/ε)) Sinkhorn iterations are needed”, and the gap to O(ε⁻²) layers is one of loose analysis. On x = "
        "(0, 1), y = (½, 3/2) Sinkhorn has the error 2/k, and layers of one λ of that order, until k is about e^{1/λ}; "
        "annealed layers do not.",
        "paper, section 5, “Depth efficient guarantees”; ours: docs/limits.md"),
    _experiment("rates", "", 2, "Linear rates, predicted and measured",
        "Near the solution layers contract linearly: by (1+σ)/2 per layer for gradient, by σ² per pair of layers for "
        "alternating, and by the root of (μ+ω−1)² = μω²σ² for relaxed.",
        "ours: docs/theory.md"),
    _experiment("errata", "appendix B", 1, "Errata, measured",
        "The parameters as printed do not give the theorem; with small corrections they do.",
        "paper, table of parameters, theorem 3.1, appendices B and C"),
    _experiment("ablation", "section 3", 4, "Taking the network apart",
        "The extended prompt is memory and statistics that the proof cannot do without. Which parts, exactly?",
        "paper, section 3, “Prompt engineering is essential”"),
    _experiment("general-costs", "section 5", 8, "Other costs through a feed-forward layer",
        "The paper conjectures that attention with feed-forward layers solves the problem for general costs. A frozen "
        "ReLU layer that computes features does so for plain Euclidean distance and for smooth costs on the line.",
        "paper, section 5, “Generalized Cost Functions”"),
    _experiment("generalization", "figure 2 (1)", 10, "Trained on 7 points, tested on 9",
        "A transformer trained on 7 points closely approximates the transport plan of 9 points."),
    _experiment("prompting", "figure 2 (2)", 9, "With and without the engineered prompt",
        "Prompt engineering significantly enhances the capacity to solve optimal transport; the plain encoding of "
        "(x_i, y_i) reduces performance."),
    _experiment("iterative", "figure 2 (3)", 2, "Layer by layer, three ways of looking",
        "Attention weights evolve across layers, progressively yielding a more accurate approximation of the optimal "
        "solution (layers 5, 15 and 20 shown)."),
    _experiment("generalization-15", "figure 9", 4, "Trained on 7 points, tested on 15",
        "The model trained on 7 points closely approximates the plan of 15; the engineered prompt is what does it; "
        "attention becomes more accurate from layer 5 to 15 to 20.",
        "paper, appendix, “Supplementary experiments”, figure 9"),
    _experiment("trained", "section 1.2", 18, "Constructed beside trained",
        "Trained transformers solve transport as the construction does, by iterates of the dual variables.",
        "paper, sections 1.2 and 3; the project"),
    _experiment("beyond", "section 5", 25, "Trained on at most 7 points, tested on 30",
        "With standard attention and the engineered prompt, a network that never sees more than 7 points has at least "
        "98 % of rows right at n = 9, 90 % at n = 15 and 70 % at n = 30 (median of eight seeds).",
        "the project, and paper, section 5, “Learning with Small Prompts”"),
    _experiment("learned-algorithm", "section 5", 6, "Is the learned network the constructed one?",
        "A network trained from the perturbed construction is the construction with other λ and γ in every loop: its logits "
        "are the six terms of a constructed head, what it writes is −γ tanh(½ log S), and a constructed network with "
        "those λ and γ gives the same rows.",
        "the project, and paper, section 5, “Learning with Small Prompts”"),
    _experiment("fox", "figure 1", 4, "Attention on the fox pair, beside transport",
        "Transport of word representations from the first encoder layer matches words with the same meaning, and "
        "attention weights progressively approximate that plan as depth increases.",
        "paper, section 1.1 and figure 1", needs="words"),
    _experiment("translation-attention", "figure 5", 6, "Cross-attention finds translated words, English–French",
        "MRR and Hits@k of cross-attention consistently improve with depth: deeper layers align translated words better, "
        "and attention converges toward the optimal transport solution.",
        "paper, section 4.1 and figure 5", needs="words"),
    _experiment("translation-attention-de", "figure 6", 6, "Cross-attention finds translated words, German–English",
        "The same improvement with depth for German–English, even stronger: attention in the final layer aligns over 80 % "
        "of the translated pairs.",
        "paper, section 4.1 and figure 6", needs="words", function="translation_attention:run_german"),
    _experiment("embedding-ot", "figure 7", 1, "Transport between word vectors finds translations",
        "Optimal transport between word embeddings aligns translated words: Hits@1 is nearly 0.9 over 10,000 sentence "
        "pairs. Ours: it finds more of them than nearest neighbours do on the same words.",
        "paper, section 4.2 and figure 7"),
    _experiment("transport-translator", "section 4.1", 2, "Translators whose cross-attention is a transport",
        "The paper reads transport off attention that was trained without it. If cross-attention has to be a transport, or "
        "its plan is in the loss, does a translator align better, in earlier layers, and at what cost?",
        "the project, and paper, section 4.1"),
    _experiment("transport-translator-long", "section 4.1", 2, "The same translators, trained longer",
        "Where the plan of the embeddings is in the loss, or columns are softly held, words are aligned sooner and better "
        "at the beginning of training. Does it last?",
        "the project, and paper, section 4.1"),
)
# fmt: on

EXPERIMENTS: dict[str, Experiment] = {each.name: each for each in _ALL}


def listing() -> list[tuple[str, str, int, str]]:
    """Name, place in the paper, seconds at the default size and title of every experiment.

    >>> listing()[0]
    ('convergence', 'figure 3', 4, 'Attention converges to the plan')
    """
    return [(each.name, each.shows, each.seconds, each.title) for each in EXPERIMENTS.values()]


def left_out() -> dict[str, str]:
    """The experiments that cannot run here, each with the extra of the package that it needs."""
    return {name: each.needs for name, each in EXPERIMENTS.items() if each.needs and not find_spec(MODULES[each.needs])}


def chosen(names: Iterable[str] | None) -> list[Experiment]:
    """The experiments of these names, each once, in the order of the report; for None all whose extras are installed.

    A name may be a place in the paper: ``figure-3``, ``fig3``, ``figure-2`` (its three parts), ``fig2.1``, ``theorem-3.1``.

    >>> [each.name for each in chosen(["sizes", "fig3", "figure-2"])]
    ['convergence', 'sizes', 'generalization', 'prompting', 'iterative']
    """
    missing = left_out()
    if names is None:
        return [each for each in EXPERIMENTS.values() if each.name not in missing]
    asked = {found for name in names for found in _named(name)}
    for name in sorted(asked & set(missing)):
        raise ValueError(f"{name} needs an extra: {install(missing[name])}")
    return [each for each in EXPERIMENTS.values() if each.name in asked]


def _named(name: str) -> list[str]:
    """The experiment of that name, or those at that place in the paper; for figure 2 all of its parts."""
    if name in EXPERIMENTS:
        return [name]
    wanted = _place(name)
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
