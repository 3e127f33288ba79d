"""What OTT-JAX gives for the problems of test_like_ott.py: ``python ott_values.py GIVEN.npz OUT.npz``.

A process of its own: jax starts threads, and a process with threads should not fork, as other tests do.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def values(x: Any, y: Any, M: Any, a: Any, b: Any, w: Any, numbers: Any, epsilon: float, tau: float) -> dict[str, Any]:
    from ott.geometry.geometry import Geometry
    from ott.geometry.pointcloud import PointCloud
    from ott.problems.linear.linear_problem import LinearProblem
    from ott.solvers.linear.sinkhorn import Sinkhorn
    from ott.tools import soft_sort

    solver = Sinkhorn(threshold=1e-10, max_iterations=50_000)
    matrix = Geometry(cost_matrix=M, epsilon=epsilon)
    solved = {
        "points": solver(LinearProblem(PointCloud(x, y, epsilon=epsilon))),
        "matrix": solver(LinearProblem(matrix)),
        "weights": solver(LinearProblem(matrix, a, b)),
        "unbalanced": solver(LinearProblem(matrix, a, b, tau_a=tau, tau_b=tau)),
    }
    parts = {"plan": "matrix", "converged": "converged", "f": "f", "g": "g"}
    return {f"{name} {part}": getattr(out, of) for name, out in solved.items() for part, of in parts.items()} | {
        "weights applied": solved["weights"].apply(w, axis=1),
        "weights value": solved["weights"].reg_ot_cost,
        "sorted": soft_sort.sort(numbers, epsilon=1e-3),
        "ranks": soft_sort.ranks(numbers, epsilon=1e-3),
    }


if __name__ == "__main__":
    import jax

    jax.config.update("jax_enable_x64", True)
    read = np.load(sys.argv[1])
    given = {name: jax.numpy.asarray(value) if value.ndim else value.item() for name, value in read.items()}
    np.savez(sys.argv[2], **{name: np.asarray(value) for name, value in values(**given).items()})
