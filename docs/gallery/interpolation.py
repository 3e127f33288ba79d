"""Straight lines of an optimal plan carry one shape into another.

Displacement interpolation: `interpolate` moves each point along the line to its partner; a square becomes a ring.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

rng = np.random.default_rng(0)
square = rng.uniform(-1, 1, (400, 2))
angle = rng.uniform(0, 2 * np.pi, 400)
ring = np.stack([np.cos(angle), np.sin(angle)], axis=1) * rng.uniform(0.85, 1.15, (400, 1))
plan = of.solve_sample(square, ring, reg=0)

figure, axes = plt.subplots(1, 5, figsize=(9, 2.1), layout="constrained")
for axis, t in zip(axes, np.linspace(0, 1, 5), strict=True):
    axis.scatter(*plan.interpolate(t)[0].T, s=2)
    axis.set(title=f"t = {t:.2f}", xticks=[], yticks=[], aspect="equal", xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
figure.savefig("interpolation.png")
middle, masses = plan.interpolate(0.5)
assert len(middle) == 400
assert abs(of.solve_sample(square, middle, reg=0).value - plan.value / 4) < 1e-12  # half of the way, a quarter of the cost
