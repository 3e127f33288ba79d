"""The whole memory of the network: two columns of the residual stream.

Tokens in rows, registers in columns, before and after 300 layers; only the columns u and v have changed.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

x, y = np.random.default_rng(0).random((2, 6, 1))
trace = of.AligningTransformer(dim=1, reg=0.05, depth=300)(x, y)
before, after = trace.Z(0).numpy(), trace.Z(300).numpy()
names = list(trace.network.registers)

figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharey=True)
for axis, Z, title in zip(axes, (before, after), ("the prompt", "after 300 layers"), strict=True):
    image = axis.imshow(Z, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    axis.set(title=title, xticks=range(len(names)), ylabel="token (the sink last)")
    axis.set_xticklabels(names, rotation=90, fontsize=7)
    axis.grid(False)
figure.colorbar(image, ax=axes, label="value, cut off at ±1", extend="both")
figure.savefig("residual_stream.png")
changed = {names[k] for k in range(len(names)) if not np.array_equal(before[:, k], after[:, k])}
assert changed == {"u", "v"}, changed
