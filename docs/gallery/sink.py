"""With the paper's sink token the layers leave gradient descent; with a frozen sink they are gradient descent.

Distance of the potentials from gradient descent on the dual, by layer, for the two kinds of sink (erratum on theorem 3.1).
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import torch

import otformer as of
from otformer.transport.reference import gradient_descent

x, y = torch.tensor(np.random.default_rng(0).random((2, 8, 2)))
steps = list(itertools.islice(gradient_descent(((x[:, None] - y) ** 2).sum(-1), 0.1, 0.1), 201))
off = {}
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for sink in ("frozen", "token"):
    trace = of.AligningTransformer(dim=2, reg=0.1, depth=200, sink=sink)(x, y, warn=False)
    off[sink] = [float((torch.cat(trace.potentials(k)) - torch.cat(steps[k])).abs().max()) for k in range(201)]
    axis.semilogy(range(1, 201), np.maximum(off[sink][1:], 1e-17), label=f"sink {sink}")
axis.set(xlabel="layer", ylabel="largest difference in u, v", title="Theorem 3.1 needs a frozen sink")
axis.legend()
figure.savefig("sink.png")
assert max(off["frozen"]) < 1e-12
assert off["token"][-1] > 0.05
