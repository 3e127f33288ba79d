"""An entropic plan can be rounded to a feasible one with a proof of how far from optimal it is.

`Result.rounded()` gives a plan and a lower bound; the exact optimum lies between them, and the gap falls with λ.
"""

import matplotlib.pyplot as plt
import numpy as np
import ot

import otformer as of

x, y = np.random.default_rng(0).random((2, 50, 2))
exact = ot.emd2(np.ones(50) / 50, np.ones(50) / 50, ot.dist(x, y))
regs = np.geomspace(0.1, 0.0005, 8)
rounded = [of.solve_sample(x, y, reg=reg).rounded() for reg in regs]

figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
values = [r.value for r in rounded]
axis.fill_between(regs, [r.bound for r in rounded], values, alpha=0.3, label="proved: between bound and value")
axis.plot(regs, values, marker="o", label="value of the rounded plan")
axis.axhline(exact, color="black", linestyle="--", label="POT's emd2")
axis.set(xscale="log", xlabel="λ", ylabel="Σ P C", title="The optimum is inside the band")
axis.legend()
figure.savefig("certificate.png")
assert all(r.bound <= exact + 1e-12 and exact <= r.value + 1e-12 for r in rounded)
assert rounded[-1].gap < rounded[0].gap / 20
