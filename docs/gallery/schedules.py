"""Over-relaxed layers reach the plan in less than a third of the gradient layers.

Marginal error by layer of one problem for three schedules; only the steps written into the weights differ.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

x, y = np.random.default_rng(1).random((2, 20, 2))
depth = {}
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for name in ("gradient", "alternating", "relaxed"):
    trace = of.AligningTransformer(dim=2, reg=0.02, depth=600, schedule=name)(x, y, warn=False)
    errors = trace.marginal_errors() / 20
    axis.semilogy(errors, label=name)
    depth[name] = int((errors < 1e-4).nonzero()[0])
axis.axhline(1e-4, color="grey", linewidth=0.8)
axis.set_title("Layers to 1e-4: " + ", ".join(f"{name} {layers}" for name, layers in depth.items()))
axis.set(xlabel="layer", ylabel="marginal error / n")
axis.legend()
figure.savefig("schedules.png")
assert 3 * depth["relaxed"] < depth["gradient"]
