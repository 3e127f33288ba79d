"""All distances between twelve clouds in one call.

`of.solve_batch` solves 66 problems of different sizes together; the nearest neighbour of every cloud is of its own kind.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

rng = np.random.default_rng(0)
disc = [0.35 * rng.normal(size=(rng.integers(30, 60), 2)) for _ in range(6)]
ring = [rng.normal(size=(n, 2)) for n in range(30, 60, 5)]
ring = [cloud / np.linalg.norm(cloud, axis=1, keepdims=True) for cloud in ring]
clouds = disc + ring
pairs = list(itertools.combinations(range(12), 2))
results = of.solve_batch([(clouds[i], clouds[j]) for i, j in pairs], reg=0.02)
distance = np.zeros((12, 12))
for (i, j), result in zip(pairs, results, strict=True):
    distance[i, j] = distance[j, i] = result.value_linear

figure, axis = plt.subplots(figsize=(4, 3.2), layout="constrained")
figure.colorbar(axis.imshow(distance, cmap="Blues"), label="Σ P C")
axis.set(title="discs 1–6, rings 7–12", xticks=[], yticks=[])
figure.savefig("distances.png")
assert all(result.converged for result in results)
nearest = (distance + 9 * np.eye(12)).argmin(1)
assert ((nearest < 6) == (np.arange(12) < 6)).all()
