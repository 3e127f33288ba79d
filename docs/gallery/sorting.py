"""Sorting is transport onto an increasing list.

Every number is sent to the place of its rank; the plan between the list and the grid is the permutation that sorts.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

values = np.random.default_rng(3).normal(size=15)
order = of.argsort(values)

figure, axes = plt.subplots(1, 2, figsize=(7, 3.1), layout="constrained", width_ratios=(2, 1))
for place, k in enumerate(order):
    axes[0].plot([k, place], [1, 0], color=plt.cm.viridis(place / 14))
    axes[0].text(k, 1.04, f"{values[k]:.1f}", ha="center", fontsize=8)
    axes[0].text(place, -0.05, f"{values[k]:.1f}", ha="center", va="top", fontsize=8)
axes[0].set(title="the list above, sorted below", ylim=(-0.25, 1.2))
axes[0].axis("off")
plan = of.solve_sample(values[:, None], np.sort(values)[:, None], reg=0).dense()
axes[1].imshow(plan, cmap="Blues")
axes[1].set(title="the plan", xlabel="place", ylabel="number", xticks=[0, 14], yticks=[0, 14])
axes[1].grid(False)
figure.savefig("sorting.png")
assert (order == np.argsort(values)).all()
assert (plan.argmax(0) == order).all()
