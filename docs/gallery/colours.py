"""Colours of one picture moved onto another's palette.

Two synthetic pictures; the barycentric map of the entropic plan between their colours recolours the first.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

rng = np.random.default_rng(0)
s, t = np.meshgrid(np.linspace(0, 1, 24), np.linspace(0, 1, 24))
day = np.stack([0.2 + 0.3 * t, 0.5 + 0.2 * t, 0.95 - 0.4 * t], axis=-1) + 0.03 * rng.random((24, 24, 1))
dusk = np.stack([0.9 - 0.3 * s, 0.35 + 0.2 * s * t, 0.25 + 0.2 * t], axis=-1) + 0.03 * rng.random((24, 24, 1))
result = of.solve_sample(day.reshape(-1, 3), dusk.reshape(-1, 3), reg=0.002)
recoloured = result.map(dusk.reshape(-1, 3)).reshape(24, 24, 3)

figure, axes = plt.subplots(1, 3, figsize=(6.5, 2.4), layout="constrained")
for axis, picture, title in zip(axes, (day, dusk, recoloured), ("picture", "palette", "recoloured"), strict=True):
    axis.imshow(picture.clip(0, 1))
    axis.set(title=title, xticks=[], yticks=[])
figure.savefig("colours.png")
assert result.converged
assert abs(recoloured.mean((0, 1)) - dusk.mean((0, 1))).max() < 1e-4  # a plan moves all colours, so the means agree
