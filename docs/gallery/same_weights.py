"""The same weights solve problems with any number of points.

The error of one network's plan, by layer, for 4 to 64 points: n is not in the weights.
"""

import matplotlib.pyplot as plt
import numpy as np

import otformer as of

net = of.AligningTransformer(dim=2, reg=0.1, depth=400)
weights = net.state_dict()["W_Q"].clone()
rng = np.random.default_rng(0)

figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for n in (4, 8, 16, 32, 64):
    trace = net(rng.random((n, 2)), rng.random((n, 2)))
    error = trace.marginal_errors() / n
    axis.semilogy(error, label=f"n = {n}")
    assert trace.converged, n
axis.set(xlabel="layer", ylabel="marginal error / n", title="One network, five sizes")
axis.legend()
figure.savefig("same_weights.png")
assert net.state_dict()["W_Q"].equal(weights)
