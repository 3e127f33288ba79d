"""Points flow to a target along the gradient of a debiased transport loss.

`of.SamplesLoss` has GeomLoss's meaning; its gradient moves every point.
"""

import matplotlib.pyplot as plt
import torch

import otformer as of

generator = torch.Generator().manual_seed(0)
x = (0.15 * torch.randn(120, 2, generator=generator, dtype=torch.float64)).requires_grad_()
angle = 6.283 * torch.rand(120, generator=generator, dtype=torch.float64)
y = torch.stack([angle.cos(), angle.sin()], 1)
loss = of.SamplesLoss("sinkhorn", p=2, blur=0.1)

figure, axes = plt.subplots(1, 4, figsize=(8, 2.2), layout="constrained")
values = []
for step in range(13):
    value = loss(x, y)
    values.append(float(value.detach()))
    if step % 4 == 0:
        axes[step // 4].scatter(*y.T, s=4, color="lightgrey")
        axes[step // 4].scatter(*x.detach().T, s=4)
        axes[step // 4].set(title=f"step {step}: {values[-1]:.3f}", xticks=[], yticks=[], aspect="equal")
    (gradient,) = torch.autograd.grad(value, x)
    x = (x - 0.4 * 120 * gradient).detach().requires_grad_()
figure.savefig("gradient_flow.png")
assert values[-1] < 0.05 * values[0]
