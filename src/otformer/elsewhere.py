"""Names of POT and OTT that otformer does not have, and what to use instead: in otformer, or where they come from.

docs/not-here.md says the same at length. A name is answered by its own line, or by the first stem that it contains.
"""

from __future__ import annotations

_PAGE = "docs/not-here.md"
_NAMES = {
    # here, under another name
    "free_support_barycenter free_support_sinkhorn_barycenter solve_bary_sample FreeWassersteinBarycenter": (
        "use of.barycenter(clouds, weights, reg, start=X_init)"
    ),
    "da EMDTransport SinkhornTransport": "use of.DomainAdapter(reg_e).fit(Xs, ys, Xt), where reg_e=0 is EMDTransport",
    "sinkhorn_unbalanced sinkhorn_unbalanced2 mm_unbalanced unbalanced": "use of.solve_unbalanced(M, a, b, reg, reg_m)",
    "partial_wasserstein entropic_partial_wasserstein partial": "use of.solve_partial(M, a, b, reg, mass)",
    "emd_1d emd2_1d": "use of.wasserstein_1d(x, y), or of.emd on a cost matrix",
    "empirical_sinkhorn empirical_sinkhorn2 PointCloud": "use of.solve_sample(x, y, reg=…)",
    "empirical_sinkhorn_divergence sinkhorn_divergence": "use of.divergence(x, y, reg=…)",
    "Geometry LinearProblem": "use of.solve(M, a, b, reg=…)",
    "Sinkhorn": "use of.solve(M, reg=…), or solver=of.Mixed(memory=0) for plain steps",
    "solve_sample_batch": "use of.solve_batch(problems, reg)",
    "emd2_lazy solve_lazy": "use of.solve_sample(x, y, reg=0, executor='stream')",
    "dist": "give metric= to of.solve_sample, or use scipy.spatial.distance.cdist",
    "unif": "leave weights out: they are uniform",
    "soft_sort soft_rank": "use of.nn.SoftSort()",
    "to_dual_potentials DualPotentials": "use of.solve_sample(x, y).transform(points)",
    # not here
    "weak_optimal_transport weak": "weak transport is not here; use ot.weak_optimal_transport",
    "wasserstein_circle binary_search_circle": "transport on a circle is not here; use ot.wasserstein_circle",
    "gaussian bures_wasserstein_distance": "transport of Gaussians in closed form is not here; use ot.gaussian",
    "gmm": "transport of Gaussian mixtures is not here; use ot.gmm",
    "smooth": "quadratic regularisation is not here; use ot.smooth",
    "dmmot_monge_1dgrid_optimize": "transport of many marginals is not here; use ot.lp.dmmot_monge_1dgrid_optimize",
}
_STEMS = {
    "gromov": "Gromov–Wasserstein is not here; use ot.solve_gromov, or ott.solvers.quadratic",
    "sliced": "sliced distances are not here; use ot.sliced_wasserstein_distance, or of.solve_sample, which streams",
    "low_rank lowrank factored": (
        "low-rank plans are not here; of.solve_sample(…, executor='stream') needs O(n + m) memory at full rank; "
        "or use ot.lowrank_sinkhorn, or ott.solvers.linear.sinkhorn_lr"
    ),
    "neural monge_gap icnn": "neural maps are not here; use result.transform(points), or ott.neural",
    "semidiscrete semi_discrete stochastic": (
        "semidiscrete transport is not here; draw points for of.solve_sample, or use ot.semidiscrete"
    ),
    "multimarginal multi_marginal": "transport of many marginals is not here; use ott.experimental.mmsinkhorn",
    "convolutional barycenter": (
        "of.barycenter has free support; for histograms on a fixed grid use ot.barycenter, or "
        "ot.bregman.convolutional_barycenter2d"
    ),
}
KNOWN = {name: said for names, said in _NAMES.items() for name in names.split()}


def instead(name: str) -> str:
    """One sentence on a name that otformer does not have; empty if it is nobody's.

    >>> instead("gromov_wasserstein2")
    'Gromov–Wasserstein is not here; use ot.solve_gromov, or ott.solvers.quadratic (docs/not-here.md)'
    >>> instead("nothing")
    ''
    """
    said = KNOWN.get(name) or next((said for stems, said in _STEMS.items() if _has_one(name, stems)), "")
    return f"{said} ({_PAGE})" if said else ""


def _has_one(name: str, stems: str) -> bool:
    return any(stem in name.lower() for stem in stems.split())
