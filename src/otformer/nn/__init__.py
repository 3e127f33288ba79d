"""Transport as layers of a network that learns: matrices of given sums, soft sorting and ranking, plans between point sets.

Forward solves all problems of a batch to ``tol``; backward is the implicit derivative of the solution, not that of the
iterations. Solving is in float64 where float32 does not reach ``tol``; outputs have the dtype of the input.
"""

from otformer.nn.attention import SinkhornAttention
from otformer.nn.couplings import OTPlanSampler
from otformer.nn.doubly_stochastic import DoublyStochastic
from otformer.nn.earth_mover import EarthMover
from otformer.nn.matcher import Matcher
from otformer.nn.sorting import SoftQuantile, SoftRank, SoftSort, SoftTopK
from otformer.nn.transport import Transport

__all__ = [
    "DoublyStochastic", "EarthMover", "Matcher", "OTPlanSampler", "SinkhornAttention", "SoftQuantile", "SoftRank",
    "SoftSort", "SoftTopK", "Transport",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
