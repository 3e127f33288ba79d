"""Layers converge linearly from any start, and theorem L bounds the rate.

The largest distance to the solution in Hilbert's metric, layer by layer, for random points and γ = λ. Theorem L bounds it at
every layer without knowing the solution; theorem A, like the paper's bound, falls as 1/√ℓ.
"""

import matplotlib.pyplot as plt
import torch

import otformer as of
from otformer import theory
from otformer.theory import bounds, hilbert

generator = torch.Generator().manual_seed(0)
figure, axes = plt.subplots(1, 2, figsize=(8.5, 3), layout="constrained", sharey=True)
for axis, reg in zip(axes, (1.0, 0.5), strict=True):
    x, y = torch.rand(2, 4, 2, dtype=torch.float64, generator=generator)
    C, net = torch.cdist(x, y) ** 2, of.AligningTransformer(dim=2, reg=reg, depth=600)
    trace, log_phi, far = net(x, y), hilbert.log_phi(C, reg), theory.start_distance(C, reg)
    layers = range(1, 250)
    measured = bounds.distances([trace.potentials(k) for k in layers], trace.potentials(600), reg).clamp(min=1e-15)
    linear = [theory.linear_bound(reg, far, k, log_phi) for k in layers]
    axis.semilogy(layers, measured, "k", label="measured")
    axis.semilogy(layers, linear, label="theorem L")
    axis.semilogy(layers, [theory.hilbert_bound(reg, far, k, log_phi) for k in layers], "--", label="theorem A")
    axis.set(xlabel="layer", title=f"λ = {reg:g}", ylim=(1e-15, 1e4))
    axis.legend(fontsize=8)
    assert all(float(m) <= bound + 1e-12 for m, bound in zip(measured, linear, strict=True))
axes[0].set(ylabel="Hilbert distance to the solution")
figure.savefig("linear_rate.png")
