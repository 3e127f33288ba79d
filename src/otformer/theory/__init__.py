"""The mathematics as functions: the Hilbert metric, bounds on the depth, rates, robustness.

Proofs are in docs/theory.md and docs/theorems.md.
"""

from otformer.theory.bounds import balanced as balanced
from otformer.theory.bounds import residual_bound as residual_bound
from otformer.theory.depth_bounds import arrival_depth as arrival_depth
from otformer.theory.depth_bounds import descent_constant as descent_constant
from otformer.theory.depth_bounds import divergence_after as divergence_after
from otformer.theory.depth_bounds import divergence_bound as divergence_bound
from otformer.theory.depth_bounds import hilbert_bound as hilbert_bound
from otformer.theory.depth_bounds import hilbert_from_marginals as hilbert_from_marginals
from otformer.theory.depth_bounds import log_plan_drift as log_plan_drift
from otformer.theory.depth_bounds import plan_change as plan_change
from otformer.theory.depth_bounds import sink_rise as sink_rise
from otformer.theory.depth_bounds import start_distance as start_distance
from otformer.theory.linear_rate import contraction as contraction
from otformer.theory.linear_rate import linear_bound as linear_bound
from otformer.theory.linear_rate import linear_depth as linear_depth
from otformer.theory.linear_rate import rounding_floor as rounding_floor
from otformer.theory.samples import sampling_error as sampling_error
from otformer.theory.transport_depth import transport_depth as transport_depth
from otformer.theory.transport_depth import transport_excess as transport_excess
