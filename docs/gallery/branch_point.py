"""The plan of three points contains a square root, and no finite network contains one.

x = y = (s, 0, 0). P_11, a function of complex s, is continued around a zero s_0 of its discriminant. After one turn it is
another root; after two it is itself again. The output of softmax layers returns after every turn, so it is not the plan
(theorem X).
"""

import matplotlib.pyplot as plt
import numpy as np

n, reg = 3, 1.0
s0 = np.sqrt(reg / 2 * (np.log((n - 2) ** 2 / (4 * (n - 1))) + 1j * np.pi))
s = s0 + 0.2 * np.exp(1j * np.linspace(0, 4 * np.pi, 2001))
e = np.exp(2 * s**2 / reg)
root = np.sqrt((n - 2) ** 2 + 4 * (n - 1) * e)
for k in range(1, len(root)):  # the root that is near the one before
    root[k] *= 1 if abs(root[k] - root[k - 1]) < abs(root[k] + root[k - 1]) else -1
p = 2 * e / (2 * e + n - 2 + root)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.5, 3.2), layout="constrained")
left.plot(s.real, s.imag, "k")
left.plot(s0.real, s0.imag, "x", label="$s_0$")
left.set(title="the path of s", aspect="equal")
left.legend()
for turn, part in (("first turn", p[:1001]), ("second turn", p[1000:])):
    right.plot(part.real, part.imag, label=turn)
right.plot(p[0].real, p[0].imag, "ko")
right.set(title="$P_{11}$ along the path")
right.legend(fontsize=8)
figure.savefig("branch_point.png")
assert abs(p[2000] - p[0]) < 1e-9 < 0.1 < abs(p[1000] - p[0])
