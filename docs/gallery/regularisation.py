"""λ spreads the plan, and the transport cost rises with it.

Plans of one problem for three λ beside the exact plan, and the cost of each.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

rng = np.random.default_rng(0)
x, y = np.sort(rng.random(20))[:, None], np.sort(rng.random(20))[:, None]
regs = (0.1, 0.01, 0.001, 0.0)
results = [of.solve_sample(x, y, reg=reg) for reg in regs]

figure, axes = plt.subplots(1, 4, figsize=(8.5, 2.5), layout="constrained")
for axis, reg, result in zip(axes, regs, results, strict=True):
    plan = result.dense() if reg == 0 else result.plan
    axis.imshow(plan, cmap="Blues", vmin=0, vmax=1 / 20)
    axis.set_title(f"λ = {reg}: Σ P C = {result.value_linear:.4f}", fontsize=9)
    axis.set(xticks=[], yticks=[])
figure.savefig("regularisation.png")
costs = [result.value_linear for result in results]
assert costs == sorted(costs, reverse=True)
assert results[-1].gap < 1e-12
