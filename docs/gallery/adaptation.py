"""A classifier for data that have been rotated.

The target has no labels. `DomainAdapter` moves the labelled source onto it. A point then gets the label of its
nearest neighbour there.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

rng = np.random.default_rng(0)
t, labels = rng.uniform(0, np.pi, 200), np.arange(200) % 2
moons = np.stack([np.cos(t) + labels, (1 - 2 * labels) * np.sin(t) + labels / 2], 1) + rng.normal(size=(200, 2)) * 0.08
turn = np.array([[np.cos(0.3), np.sin(0.3)], [-np.sin(0.3), np.cos(0.3)]])
target, truth = moons[:100] @ turn + 0.3, labels[:100]
source, known = moons[100:], labels[100:]
moved = of.DomainAdapter(reg_e=0.02).fit(source, known, target).transform(source)

figure, axes = plt.subplots(1, 2, figsize=(7, 2.9), layout="constrained", sharey=True)
right = []
for axis, points, title in zip(axes, (source, moved), ("as it was", "transported"), strict=True):
    nearest = ((target[:, None] - points) ** 2).sum(2).argmin(1)
    right.append((known[nearest] == truth).mean())
    axis.scatter(*target.T, c="lightgrey", s=40, label="target")
    axis.scatter(*points.T, c=known, cmap="coolwarm", s=10, label="source, by label")
    axis.set(title=f"source {title}: {right[-1]:.0%} right", aspect="equal", xticks=[], yticks=[])
axes[0].legend(fontsize=7, loc="lower left")
figure.savefig("adaptation.png")
assert right[1] > 0.95 > right[0]
