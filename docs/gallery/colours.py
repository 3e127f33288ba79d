"""A photograph in the colours of another one.

This is the entropic plan between 1,500 colours of each. `transform` then moves all pixels, which are new points, by its
potentials. Photographs of scikit-learn: china.jpg by danielbuechele, flower.jpg by vultilion (CC BY 2.0).
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_images

import otformer as of

temple, flower = (picture[::3, ::3] / 255 for picture in load_sample_images().images)
rng = np.random.default_rng(0)
x, y = (rng.permutation(picture.reshape(-1, 3))[:1500] for picture in (temple, flower))
result = of.solve_sample(x, y, reg=0.003)
recoloured = result.transform(temple.reshape(-1, 3)).reshape(temple.shape)
back = result.transform(flower.reshape(-1, 3), inverse=True).reshape(flower.shape)

figure, axes = plt.subplots(2, 2, figsize=(4.4, 3.2), layout="constrained")
titles = "temple", "flower", "temple in the flower's colours", "flower in the temple's colours"
for axis, picture, title in zip(axes.flat, (temple, flower, recoloured, back), titles, strict=True):
    axis.imshow(picture.clip(0, 1))
    axis.set_title(title, fontsize=8)
    axis.axis("off")
figure.savefig("colours.png")
assert abs(result.map(y).mean(0) - y.mean(0)).max() < 1e-5  # a plan moves all colours, so the means agree
assert abs(recoloured.mean((0, 1)) - flower.mean((0, 1))).max() < 0.03  # and nearly so of pixels it has not seen
