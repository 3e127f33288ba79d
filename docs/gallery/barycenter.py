"""Barycenters: shapes between three shapes.

Barycenters with free support of a square, a ring and a cross. The place in the triangle gives the weights; the
corners are the shapes themselves.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

rng, n = np.random.default_rng(0), 250
angle, many = rng.uniform(0, 2 * np.pi, n), rng.uniform(-1, 1, (2000, 2))
ring = np.stack([np.cos(angle), np.sin(angle)], 1) * rng.uniform(0.8, 1, (n, 1))
shapes = [many[:n], ring, many[abs(many).min(1) < 0.25][:n]]

figure, axis = plt.subplots(figsize=(5.4, 4.6), layout="constrained")
corners = np.array([[0, 0], [8, 0], [4, 7]])
for i, j in [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (0, 3)]:
    weights = np.array([3 - i - j, i, j]) / 3
    found = of.barycenter(shapes, weights)
    assert found.converged
    axis.scatter(*(found.points + weights @ corners).T, s=1, color=tuple(0.8 * weights))
    if weights.max() == 1:
        assert found.value < 1e-12  # a corner is the shape itself
axis.set_aspect("equal")
axis.axis("off")
figure.savefig("barycenter.png")
