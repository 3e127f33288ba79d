"""With one λ in all layers the network is slow on two points; with annealing it is fast.

The marginal error on x = (0, 1), y = (½, 3/2) at λ = 0.05. No network with one λ and steps up to 2λ is below the dashed line
(theorem D). The network with falling λ is built for an error of 0.0001 (theorem E); its error jumps when λ falls.
"""

import matplotlib.pyplot as plt

from otformer.network.schedule import Alternating, Gradient
from otformer.theory.two_point import annealing, error_bound, path

figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name, layers in (
    ("both heads, γ = λ", Gradient().layers(0.05, 3000)),
    ("alternating heads, γ = 2λ", Alternating().layers(0.05, 3000)),
    ("annealed (theorem E)", annealing(0.05, 1e-4)),
):
    errors = [state.error for state in path(layers)]
    axis.loglog(range(1, len(errors)), errors[1:], label=f"{name}: {errors[-1]:.1e}")
bound = [error_bound(0.05, k) for k in range(1, 3000)]
axis.loglog(range(1, 3000), bound, "k--", label="theorem D")
axis.set(xlabel="layer", ylabel="marginal error", ylim=(1e-7, 10))
axis.legend(fontsize=8, loc="lower right")
figure.savefig("one_reg_is_slow.png")
assert errors[-1] < 1e-4 < error_bound(0.05, 3000)
