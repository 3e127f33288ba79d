"""Flow matching with exact couplings of growing batches: how straight are the paths, and how many steps does a sample need?

    python docs/gallery/training/flow_matching.py

A network learns the velocity of x_t = (1 − t) x_0 + t x_1 from noise x_0 to data x_1. Pairs (x_0, x_1) are drawn at random
(batch 1), or coupled exactly in batches of m by `of.nn.OTPlanSampler`. Data: two moons in the plane, and 8 × 8 pictures of
squares and crosses. *Curvature* is E ‖v(x_t, t) − (x_1 − x_0)‖²/E ‖x_1 − x_0‖² along the network's own paths, 0 for straight
ones. *Steps* are those of Euler's method until the earth mover's distance to fresh data is within 10 % of that of 64 steps.
"""

from __future__ import annotations

from itertools import pairwise

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import otformer as of

BATCH, STEPS, FINE = 256, 1500, 64  # pairs of a training step, training steps, Euler steps of the reference
COUPLED = (1, 16, 128, 1024)  # pairs that are coupled at once


def moons(count: int, g: torch.Generator) -> Tensor:
    angle, upper = torch.pi * torch.rand(count, generator=g), torch.rand(count, generator=g) < 0.5
    x = torch.stack([angle.cos(), angle.sin()], 1)
    x = torch.where(upper[:, None], x, torch.tensor([1.0, 0.5]) - x) - torch.tensor([0.5, 0.25])
    return 2 * x + 0.1 * torch.randn(count, 2, generator=g)


def pictures(count: int, g: torch.Generator) -> Tensor:
    """8 × 8, from −1 to 1: a square or a cross of 3 to 5 pixels somewhere, as rows of 64 numbers."""
    size = torch.randint(3, 6, (count, 1, 1), generator=g)
    top, left = ((torch.rand(count, 1, 1, generator=g) * (9 - size)).long() for _ in range(2))
    i, j = torch.arange(8)[None, :, None] - top, torch.arange(8)[None, None, :] - left
    inside = (i >= 0) & (i < size) & (j >= 0) & (j < size)
    cross = (i == size // 2) | (j == size // 2)
    drawn = inside & (cross | (torch.rand(count, 1, 1, generator=g) < 0.5))
    return (2.0 * drawn - 1).flatten(1) + 0.05 * torch.randn(count, 64, generator=g)


def network(d: int) -> nn.Module:
    width = 128 if d == 2 else 256
    return nn.Sequential(nn.Linear(d + 1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, d))


def velocity(net: nn.Module, x: Tensor, t: Tensor) -> Tensor:
    return net(torch.cat([x, t.expand(len(x), 1)], 1))


def train(data, d: int, coupled: int, steps: int) -> nn.Module:
    torch.manual_seed(0)
    net, g = network(d), torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    sampler, waiting = of.nn.OTPlanSampler("exact", generator=0), []
    for _ in range(steps):
        if not waiting:
            x0, x1 = torch.randn(max(coupled, BATCH), d, generator=g), data(max(coupled, BATCH), g)
            groups = zip(x0.split(coupled), x1.split(coupled), strict=True)
            pairs = [sampler.sample_plan(*pair, replace=False) for pair in groups] if coupled > 1 else [(x0, x1)]
            x0, x1 = (torch.cat(side) for side in zip(*pairs, strict=True))
            order = torch.randperm(len(x0), generator=g)
            waiting = list(zip(x0[order].split(BATCH), x1[order].split(BATCH), strict=True))
        x0, x1 = waiting.pop()
        t = torch.rand(BATCH, 1, generator=g)
        loss = (velocity(net, (1 - t) * x0 + t * x1, t) - (x1 - x0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return net.eval()


@torch.no_grad()
def flow(net: nn.Module, x: Tensor, steps: int) -> list[Tensor]:
    path = [x]
    for k in range(steps):
        path.append(path[-1] + velocity(net, path[-1], torch.full((1, 1), k / steps)) / steps)
    return path


def measure(net: nn.Module, data, d: int, count: int) -> tuple[float, int, float, list[Tensor]]:
    """Curvature, steps to equal quality, that quality, and the fine paths."""
    g = torch.Generator().manual_seed(2)
    x0, fresh = torch.randn(count, d, generator=g), data(count, g)
    path = flow(net, x0, FINE)
    whole = path[-1] - path[0]
    bends = [(FINE * (b - a) - whole).square().sum(1).mean() for a, b in pairwise(path)]
    curvature = float(torch.stack(bends).mean() / whole.square().sum(1).mean())
    best = float(of.emd_batch(path[-1], fresh).cost)
    enough = (k for k in range(1, FINE + 1) if float(of.emd_batch(flow(net, x0, k)[-1], fresh).cost) <= 1.1 * best)
    return curvature, next(enough), best, path


def run(
    steps: int = STEPS, coupled: tuple[int, ...] = COUPLED, count: int = 500
) -> dict[tuple[str, int], tuple[float, int, float]]:
    """Train and measure all, draw the picture, return curvature, steps and distance by data and batch."""
    found, paths = {}, {}
    print(f"{'data':10}{'coupled':>9}{'curvature':>11}{'steps':>7}{'distance':>10}")
    for name, data, d in (("moons", moons, 2), ("pictures", pictures, 64)):
        for m in coupled:
            *numbers, paths[name, m] = measure(train(data, d, m, steps), data, d, count)
            found[name, m] = tuple(numbers)
            print(f"{name:10}{m:9}{numbers[0]:11.4f}{numbers[1]:7}{numbers[2]:10.4f}", flush=True)
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.8), layout="constrained")
    for axis, m in zip(axes, (coupled[0], coupled[-1]), strict=False):
        lines = torch.stack(paths["moons", m])[:, :150]
        axis.plot(*lines.unbind(2), color="grey", linewidth=0.5)
        axis.scatter(*lines[-1].T, s=6, zorder=3)
        axis.set(title=f"paths, couplings of {m}", xticks=[], yticks=[])
    for axis, k, title in ((axes[2], 0, "curvature"), (axes[3], 1, "steps to equal quality")):
        for name in ("moons", "pictures"):
            axis.plot(coupled, [found[name, m][k] for m in coupled], "o-", label=name)
        axis.set(xscale="log", xlabel="pairs coupled at once", title=title)
        axis.set_ylim(bottom=0)
    axes[2].legend()
    figure.savefig("flow_matching.png", dpi=80)
    return found


if __name__ == "__main__":
    found = run()
    assert found["moons", 1024][0] < found["moons", 1][0] / 2
