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
