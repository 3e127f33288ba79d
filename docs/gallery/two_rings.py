"""Exact transport between two rings, with a proof that it is optimal.

`reg=0`: partners of the points of two circles, and the gap to a lower bound over all pairs.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

rng = np.random.default_rng(0)
angle = rng.uniform(0, 2 * np.pi, (2, 80))
circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
x, y = circle[0], 0.5 * circle[1] + (2.2, 0.4)
result = of.solve_sample(x, y, reg=0)

figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
for i, j in enumerate(result.permutation):
    axis.plot([x[i, 0], y[j, 0]], [x[i, 1], y[j, 1]], color="lightgrey", linewidth=0.8, zorder=1)
axis.scatter(*x.T, s=14, zorder=2)
axis.scatter(*y.T, s=14, zorder=2)
axis.set_aspect("equal", "box")
axis.axis("off")
axis.set_title(f"cost {result.value:.4f}, proved to {result.gap:.0e}")
figure.savefig("two_rings.png")
assert result.gap < 1e-12
assert sorted(result.permutation) == list(range(80))
