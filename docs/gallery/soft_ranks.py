"""Soft ranks become steps as λ falls.

`of.nn.SoftSort` ranks by transport onto a grid; unlike true ranks, soft ranks have a gradient.
"""

import matplotlib.pyplot as plt
import torch

import otformer as of

others = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
moving = torch.linspace(-2, 2, 81, dtype=torch.float64)
lists = torch.cat([moving[:, None], others.expand(81, 3)], dim=1)

figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for reg in (1.0, 0.3, 0.1, 0.01):
    ranks = of.nn.SoftSort(reg=reg).rank(lists)
    axis.plot(moving, ranks[:, 0], label=f"λ = {reg}")
axis.set(xlabel="value of one number among −1, 0, 1", ylabel="its rank", title="Soft ranks, from 0 to 3")
axis.legend()
figure.savefig("soft_ranks.png")
away = (moving[:, None] - others).abs().min(1).values > 0.3
assert (ranks[away, 0].round() == (moving[away, None] > others).sum(1)).all()
