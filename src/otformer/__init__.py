"""otformer: a transformer with frozen softmax-attention weights solves optimal transport, layer by layer.

>>> import otformer as of
>>> of.sort([0.3, -1.0, 2.5]).tolist()
[-1.0, 0.3, 2.5]
>>> of.solve_sample([[0.0], [1.0]], [[0.9], [0.1]], reg=0.01).plan.argmax(1).tolist()
[1, 0]

A public name is imported when it is first read (PEP 562), so that ``import otformer`` alone does not load torch. A new one
goes into the table, among the imports that type checkers read, and into ``__all__``; a test compares the three.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from otformer._version import __version__ as __version__
from otformer.elsewhere import instead
from otformer.extras import installed, lacks
from otformer.moved import answer_to_old_names

if TYPE_CHECKING:
    from otformer import nn, words
    from otformer.learning.trained import load_trained, trained_models
    from otformer.network.cost_layer import EuclideanDistance, SmoothCost
    from otformer.network.counting_sorter import CountingSorter
    from otformer.network.features import Features, cosine, cost_matrix, inner_product, mahalanobis, squared_euclidean
    from otformer.network.minimal_prompt import MinimalTransformer
    from otformer.network.schedule import Alternating, Annealed, Gradient, Paper, Relaxed, best_omega
    from otformer.network.sinkhorn_block import SinkhornTransformer
    from otformer.network.stock import StockTransformer
    from otformer.network.stock_encoder import StockEncoder
    from otformer.network.trace import Trace
    from otformer.network.transformer import AligningTransformer
    from otformer.nn.earth_mover import EarthMovers, emd_batch
    from otformer.transport.barycenter import barycenter
    from otformer.transport.compat.like_geomloss import SamplesLoss, divergence
    from otformer.transport.compat.like_pot import sinkhorn, sinkhorn2
    from otformer.transport.compat.like_pot_da import DomainAdapter
    from otformer.transport.compat.like_pot_exact import emd, emd2
    from otformer.transport.compat.like_scipy import assignment, linear_sum_assignment
    from otformer.transport.costs.graph import GraphCost, neighbour_graph
    from otformer.transport.exact.one_dimension import wasserstein_1d
    from otformer.transport.ragged.batch import BrokenProblems, solve_batch
    from otformer.transport.result.barycenter_result import Barycenter
    from otformer.transport.result.exact_result import ExactResult
    from otformer.transport.result.result import Result
    from otformer.transport.sharded import solve_sharded
    from otformer.transport.solve import solve, solve_sample, solve_streamed
    from otformer.transport.solvers.mixed import Mixed
    from otformer.transport.solvers.network import Network
    from otformer.transport.solvers.newton import Newton
    from otformer.transport.sort import argsort, sort
    from otformer.transport.variants.partial import solve_partial
    from otformer.transport.variants.unbalanced import solve_unbalanced
    from otformer.words.aligning import align

_NAMES = {  # public names by module
    # the network
    "otformer.network.transformer": "AligningTransformer",
    "otformer.network.sinkhorn_block": "SinkhornTransformer",
    "otformer.network.minimal_prompt": "MinimalTransformer",
    "otformer.network.counting_sorter": "CountingSorter",
    "otformer.network.stock": "StockTransformer",
    "otformer.network.stock_encoder": "StockEncoder",
    "otformer.network.trace": "Trace",
    "otformer.network.schedule": "Alternating Annealed Gradient Paper Relaxed best_omega",
    "otformer.network.cost_layer": "EuclideanDistance SmoothCost",
    "otformer.network.features": "Features cosine cost_matrix inner_product mahalanobis squared_euclidean",
    "otformer.learning.trained": "load_trained trained_models",
    # the solver
    "otformer.transport.solve": "solve solve_sample solve_streamed",
    "otformer.transport.costs.graph": "GraphCost neighbour_graph",
    "otformer.transport.solvers.newton": "Newton",
    "otformer.transport.solvers.mixed": "Mixed",
    "otformer.transport.solvers.network": "Network",
    "otformer.transport.ragged.batch": "BrokenProblems solve_batch",
    "otformer.transport.sharded": "solve_sharded",
    "otformer.transport.variants.unbalanced": "solve_unbalanced",
    "otformer.transport.variants.partial": "solve_partial",
    "otformer.transport.result.result": "Result",
    "otformer.transport.result.barycenter_result": "Barycenter",
    "otformer.transport.barycenter": "barycenter",
    "otformer.transport.result.exact_result": "ExactResult",
    "otformer.transport.exact.one_dimension": "wasserstein_1d",
    "otformer.transport.sort": "argsort sort",
    "otformer.nn.earth_mover": "EarthMovers emd_batch",
    # in the manner of POT, scipy and GeomLoss
    "otformer.transport.compat.like_pot": "sinkhorn sinkhorn2",
    "otformer.transport.compat.like_pot_exact": "emd emd2",
    "otformer.transport.compat.like_pot_da": "DomainAdapter",
    "otformer.transport.compat.like_scipy": "assignment linear_sum_assignment",
    "otformer.transport.compat.like_geomloss": "SamplesLoss divergence",
    # words
    "otformer.words.aligning": "align",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
_ROOMS = ("nn", "words")  # modules that are public as they are
__all__ = [
    "AligningTransformer", "Alternating", "Annealed", "Barycenter", "BrokenProblems", "CountingSorter", "DomainAdapter",
    "EarthMovers", "EuclideanDistance", "ExactResult", "Features", "Gradient", "GraphCost", "MinimalTransformer", "Mixed",
    "Network", "Newton", "Paper", "Relaxed", "Result", "SamplesLoss", "SinkhornTransformer", "SmoothCost", "StockEncoder",
    "StockTransformer", "Trace", "align", "argsort", "assignment", "barycenter", "best_omega", "cosine", "cost_matrix",
    "divergence", "emd", "emd2", "emd_batch", "inner_product", "linear_sum_assignment", "load_trained", "mahalanobis",
    "neighbour_graph", "nn", "sinkhorn", "sinkhorn2", "solve", "solve_batch", "solve_partial", "solve_sample",
    "solve_sharded", "solve_streamed", "solve_unbalanced", "sort", "squared_euclidean", "trained_models",
    "wasserstein_1d", "words",
]  # fmt: skip
answer_to_old_names()
_ABSENT = () if installed("words") else ("align", "words")  # names of the package otformer-words
for _name in _ABSENT:
    __all__.remove(_name)


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        raise ImportError(lacks(f"otformer.{name}", "words"))
    if name not in __all__:
        said = instead(name)
        raise AttributeError(f"module 'otformer' has no attribute {name!r}{': ' * bool(said)}{said}")
    found = import_module(f"otformer.{name}") if name in _ROOMS else getattr(import_module(_MODULES[name]), name)
    globals()[name] = found  # the next time nobody asks here
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
