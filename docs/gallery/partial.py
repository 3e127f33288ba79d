"""Partial transport matches the half that fits.

`of.solve_partial` moves a given mass: here 0.5 of 1, the half of the points that have a partner nearby.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

rng = np.random.default_rng(0)
x = np.concatenate([rng.random((20, 2)), rng.random((20, 2)) + np.array([0, 3])])
y = np.concatenate([rng.random((20, 2)) + np.array([1.5, 0]), rng.random((20, 2)) + np.array([1.5, -3])])
M = ((x[:, None] - y) ** 2).sum(-1)
plan = of.solve_partial(M, reg=0.02, mass=0.5).plan

figure, axis = plt.subplots(figsize=(4, 3.6), layout="constrained")
for i, j in zip(*np.nonzero(plan > 0.1 / 40), strict=True):
    axis.plot(*np.stack([x[i], y[j]]).T, color="grey", linewidth=40 * plan[i, j])
axis.scatter(*x.T, s=12)
axis.scatter(*y.T, s=12)
axis.set(xticks=[], yticks=[], title="half of the mass moves")
figure.savefig("partial.png")
assert abs(plan.sum() - 0.5) < 1e-5
assert plan[:20, :20].sum() > 0.49
