"""otformer: a transformer with frozen softmax-attention weights solves optimal transport, layer by layer.

>>> import otformer as of
>>> of.sort([0.3, -1.0, 2.5]).tolist()
[-1.0, 0.3, 2.5]
>>> of.solve_sample([[0.0], [1.0]], [[0.9], [0.1]], reg=0.01).plan.argmax(1).tolist()
[1, 0]
"""

from otformer import nn
from otformer.learning.trained import load_trained, trained_models
from otformer.network.cost_layer import EuclideanDistance, SmoothCost
from otformer.network.features import Features, cosine, cost_matrix, inner_product, mahalanobis, squared_euclidean
from otformer.network.schedule import Alternating, Annealed, Gradient, Paper, Relaxed, best_omega
from otformer.network.sinkhorn_block import SinkhornTransformer
from otformer.network.stock import StockTransformer
from otformer.network.stock_encoder import StockEncoder
from otformer.network.trace import Trace
from otformer.network.transformer import AligningTransformer
from otformer.transport.compat.like_geomloss import SamplesLoss, divergence
from otformer.transport.compat.like_pot import sinkhorn, sinkhorn2
from otformer.transport.problem.result import Result
from otformer.transport.ragged.batch import BrokenProblems, solve_batch
from otformer.transport.sharded import solve_sharded
from otformer.transport.solve import solve, solve_sample, solve_streamed
from otformer.transport.solvers.mixed import Mixed
from otformer.transport.solvers.network import Network
from otformer.transport.solvers.newton import Newton
from otformer.transport.sort import argsort, sort
from otformer.transport.variants.partial import solve_partial
from otformer.transport.variants.unbalanced import solve_unbalanced

__all__ = [
    "AligningTransformer",
    "Alternating",
    "Annealed",
    "BrokenProblems",
    "EuclideanDistance",
    "Features",
    "Gradient",
    "Mixed",
    "Network",
    "Newton",
    "Paper",
    "Relaxed",
    "Result",
    "SamplesLoss",
    "SinkhornTransformer",
    "SmoothCost",
    "StockEncoder",
    "StockTransformer",
    "Trace",
    "argsort",
    "best_omega",
    "cosine",
    "cost_matrix",
    "divergence",
    "inner_product",
    "load_trained",
    "mahalanobis",
    "nn",
    "sinkhorn",
    "sinkhorn2",
    "solve",
    "solve_batch",
    "solve_partial",
    "solve_sample",
    "solve_sharded",
    "solve_streamed",
    "solve_unbalanced",
    "sort",
    "squared_euclidean",
    "trained_models",
]
__version__ = "0.1.0"
