"""An autoencoder of point clouds, trained on three losses, judged by the exact earth mover's distance on new clouds.

    python docs/gallery/training/cloud_autoencoder.py

Clouds of 128 points on spheres, boxes, tori, cylinders and chairs made of boxes, drawn with random proportions and turned
about the vertical axis. The losses: `of.nn.EarthMover`, Chamfer, and the auction of 50 steps that is common in point
completion (written from its description in bench/earth_mover.py). Network, data, seeds and steps are the same for all.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import otformer as of

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))
from earth_mover import auction

POINTS, BATCH, STEPS = 128, 16, 1500
SHAPES = ("sphere", "box", "torus", "cylinder", "chair")


def box(n: int, low: Tensor, high: Tensor, g: torch.Generator) -> Tensor:
    """Points on the surface of a box."""
    x = torch.rand(n, 3, generator=g)
    size = high - low
    area = torch.stack([size[1] * size[2], size[0] * size[2], size[0] * size[1]])
    axis = torch.multinomial(area, n, replacement=True, generator=g)
    x[torch.arange(n), axis] = torch.randint(2, (n,), generator=g).float()
    return low + x * size


def cloud(shape: str, n: int, g: torch.Generator) -> Tensor:
    s = 0.5 + 0.5 * torch.rand(3, generator=g)
    u, v = 2 * torch.pi * torch.rand(2, n, generator=g)
    if shape == "sphere":
        x = nn.functional.normalize(torch.randn(n, 3, generator=g), dim=1) * s
    elif shape == "box":
        x = box(n, -s, s, g)
    elif shape == "torus":
        r = 0.2 + 0.2 * s[0]
        x = torch.stack([(0.8 + r * v.cos()) * u.cos(), (0.8 + r * v.cos()) * u.sin(), r * v.sin()], 1) * 0.8
    elif shape == "cylinder":
        x = torch.stack([s[0] * u.cos(), s[0] * u.sin(), s[2] * (v / torch.pi - 1)], 1)
    else:
        parts = [((-1.0, -1, 0), (1, 1, 0.15)), ((-1, 0.85, 0.15), (1, 1, 1.2))]
        parts += [((i, j, -1), (i + 0.2, j + 0.2, 0)) for i in (-1, 0.8) for j in (-1, 0.8)]
        counts = [n - 12 * (n // 16), 4 * (n // 16), *[2 * (n // 16)] * 4]
        x = torch.cat(
            [box(k, torch.tensor(a) * 1.0, torch.tensor(b) * 1.0, g) for k, (a, b) in zip(counts, parts, strict=True)]
        )
        x = 0.8 * s * x
    c, d = (2 * torch.pi * torch.rand(1, generator=g)).cos(), (2 * torch.pi * torch.rand(1, generator=g)).sin()
    return torch.stack([c * x[:, 0] - d * x[:, 1], d * x[:, 0] + c * x[:, 1], x[:, 2]], 1)


def clouds(count: int, g: torch.Generator, points: int = POINTS) -> Tensor:
    return torch.stack([cloud(SHAPES[k % len(SHAPES)], points, g) for k in range(count)])


class Autoencoder(nn.Module):
    def __init__(self, points: int = POINTS) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
        self.decode = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3 * points)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x).amax(1)).unflatten(1, (-1, 3))


def chamfer(x: Tensor, y: Tensor) -> Tensor:
    C = (x[:, :, None] - y[:, None]).square().sum(3)
    return (C.amin(2).mean(1) + C.amin(1).mean(1)).mean()


LOSSES = {
    "exact EMD": of.nn.EarthMover(),
    "auction of 50 steps": lambda x, y: auction(x, y, 0.005, 50)[0].mean(),
    "Chamfer": chamfer,
}


def train(loss, steps: int, data: Tensor) -> Autoencoder:
    torch.manual_seed(0)
    net, g = Autoencoder(data.shape[1]), torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        x = data[torch.randint(len(data), (BATCH,), generator=g)]
        optimizer.zero_grad()
        loss(net(x), x).backward()
        optimizer.step()
        schedule.step()
    return net.eval()


@torch.no_grad()
def run(steps: int = STEPS, known: int = 1000, new: int = 100, points: int = POINTS) -> dict[str, tuple[float, float]]:
    """Train and judge, draw the picture, return exact EMD and Chamfer on new clouds by the loss trained on."""
    g = torch.Generator().manual_seed(0)
    data, test = clouds(known, g, points), clouds(new, g, points)
    found, shown = {}, [("new clouds", test)]
    print(f"{'trained on':22}{'exact EMD':>11}{'Chamfer':>10}{'seconds':>9}")
    for name, loss in LOSSES.items():
        began = time.perf_counter()
        with torch.enable_grad():
            net = train(loss, steps, data)
        seconds, made = time.perf_counter() - began, net(test)
        found[name] = float(of.emd_batch(made, test).cost.mean()), float(chamfer(made, test))
        print(f"{name:22}{found[name][0]:11.4f}{found[name][1]:10.4f}{seconds:9.0f}", flush=True)
        shown.append((f"{name}: EMD {found[name][0]:.3f}", made))
    figure, axes = plt.subplots(len(shown), 5, figsize=(7.5, 6.2), layout="constrained", subplot_kw={"projection": "3d"})
    for row, (title, made) in zip(axes, shown, strict=True):
        for axis, x in zip(row, made, strict=False):
            axis.scatter(*x.T, s=2)
            axis.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1))
            axis.set_axis_off()
        row[2].set_title(title, fontsize=9)
    figure.savefig("cloud_autoencoder.png", dpi=60)
    return found


if __name__ == "__main__":
    found = run()
    assert found["exact EMD"][0] < 0.8 * found["Chamfer"][0]
