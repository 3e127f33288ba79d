"""Attention becomes the transport plan, layer by layer.

One untrained network: attention of the rows head at four layers, and the plan that POT computes.
"""

import matplotlib.pyplot as plt
import numpy as np
import ot

import otformer as of

x, y = 0.3 + 0.4 * np.sort(np.random.default_rng(0).random(12)), np.linspace(0, 1, 12)
x, y, uniform = x[:, None], y[:, None], np.ones(12) / 12
trace = of.AligningTransformer(dim=1, reg=0.01, depth=400, schedule="relaxed")(x, y)
plan = 12 * ot.sinkhorn(uniform, uniform, ot.dist(x, y), 0.01, stopThr=1e-12, numItermax=10_000)

figure, axes = plt.subplots(1, 5, figsize=(9, 2.2), layout="constrained")
for axis, layer in zip(axes, (0, 10, 40, 400), strict=False):
    attention = trace.attention(layer).numpy()
    axis.imshow(attention, cmap="Blues", vmin=0, vmax=0.7)
    axis.set_title(f"layer {layer}: {abs(attention - plan).sum() / 24:.4f}", fontsize=9)
axes[-1].imshow(plan, cmap="Blues", vmin=0, vmax=0.7)
axes[-1].set_title("POT's plan", fontsize=9)
for axis in axes:
    axis.set(xticks=[], yticks=[])
figure.supxlabel("number: total variation to the plan, mean over rows", fontsize=8)
figure.savefig("attention_becomes_plan.png")
assert abs(trace.attention(400).numpy() - plan).max() < 1e-6 < 0.2 < abs(trace.attention(0).numpy() - plan).max()
