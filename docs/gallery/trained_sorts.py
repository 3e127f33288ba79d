"""A trained network sorts longer lists than it was trained on; the paper's recipe does not.

Output attention for 15 real numbers: row i should attend to the i-th smallest. Both were trained on at most 7.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

values = np.random.default_rng(2).random(15)
places = np.arange(1, 16) / 15
right = {}
figure, axes = plt.subplots(1, 3, figsize=(8, 2.7), layout="constrained")
for axis, name in zip(axes, ("paper-attention", "sort-beyond"), strict=False):
    attention = of.load_trained(name)(values, places).detach().numpy()
    right[name] = (attention.argmax(1) == np.argsort(values)).mean()
    axis.imshow(attention, cmap="Blues", vmin=0, vmax=1)
    axis.set_title(f"{name}: {right[name]:.0%} of rows", fontsize=9)
axes[2].imshow(np.eye(15)[np.argsort(values)], cmap="Blues")
axes[2].set_title("the permutation that sorts", fontsize=9)
for axis in axes:
    axis.set(xticks=[], yticks=[])
figure.savefig("trained_sorts.png")
assert right["sort-beyond"] >= 0.8 > right["paper-attention"]
