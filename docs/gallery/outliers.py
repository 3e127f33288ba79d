"""Unbalanced transport leaves outliers behind.

With marginals as a penalty (`reg_m`), points too far away keep little mass; balanced transport must move all of it.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

rng = np.random.default_rng(0)
x = np.concatenate([rng.normal(size=(40, 2)) * 0.3, rng.normal(size=(5, 2)) * 0.1 + (0, 4)])
y = rng.normal(size=(45, 2)) * 0.3 + (2, 0)
results = of.solve_sample(x, y, reg=0.05), of.solve_sample(x, y, reg=0.05, unbalanced=2.0)

figure, axes = plt.subplots(1, 2, figsize=(7, 3), layout="constrained", sharey=True)
for axis, result, title in zip(axes, results, ("balanced", "unbalanced, ρ = 2"), strict=True):
    mass = np.asarray(result.marginal_a) * 45
    axis.scatter(*x.T, s=40 * mass, label="source")
    axis.scatter(*y.T, s=40 * np.asarray(result.marginal_b) * 45, label="target")
    axis.set(title=f"{title}: outliers carry {mass[40:].sum() / mass.sum():.0%}", xticks=[], yticks=[])
axes[0].legend(title="area: mass carried", loc="upper right")
figure.savefig("outliers.png")
balanced, penalised = (np.asarray(r.marginal_a)[40:].sum() / r.mass for r in results)
assert abs(balanced - 5 / 45) < 1e-5
assert penalised < balanced / 3
