"""Forbidden pairs: only points of one colour may match.

`labels=` keeps classes apart without a mask; the price is a higher cost.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

rng = np.random.default_rng(0)
x, y = rng.random((30, 2)), rng.random((30, 2)) + np.array([1.3, 0])
kinds = np.arange(30) % 3
free, kept = of.solve_sample(x, y, reg=0), of.solve_sample(x, y, reg=0, labels=(kinds, kinds))

figure, axes = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
for axis, result, title in zip(axes, (free, kept), ("all pairs", "same colour only"), strict=True):
    for i, j in enumerate(result.pairs[1]):
        axis.plot(*np.stack([x[i], y[j]]).T, color=f"C{kinds[i]}" if kinds[i] == kinds[j] else "lightgrey", linewidth=0.8)
    axis.scatter(*x.T, c=[f"C{k}" for k in kinds], s=14)
    axis.scatter(*y.T, c=[f"C{k}" for k in kinds], s=14)
    axis.set(title=f"{title}: {result.value:.4f}", xticks=[], yticks=[])
figure.savefig("labels.png")
assert (kinds[kept.pairs[0]] == kinds[kept.pairs[1]]).all()
assert kept.value > free.value
