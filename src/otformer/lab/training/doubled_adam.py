"""What torch's Adam does with a list that holds every parameter twice, as the author's notebook gives it, on a device.

On the CPU torch goes through the list: each parameter is stepped twice with the same gradient; both entries have the same
moments and the same counter (`Recipe.doubled` = "stepped"). On a GPU one kernel works on the whole list at once, and two of
its blocks change the same numbers at the same time: a race, whose result torch does not promise. On an H200 both blocks read
the old numbers, so that one step is made; the counter, on the CPU, has counted two ("counted"): within 0.04 stepsizes
after 20 steps, where two steps would be 15 stepsizes away. After some thousand steps a counter that is twice as far ahead
changes nothing, for it only corrects the bias of the first moments.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

LAYERS, SIZE, STEPS, RATE = 20, 11, 20, 5e-4


def begin_moments(adam: torch.optim.Adam) -> None:
    """Give Adam's parameters moments and counters of 0, as its first step would."""
    for group in adam.param_groups:
        for p in group["params"]:
            if p.requires_grad:
                counter = torch.zeros((), dtype=torch.float32, device=p.device if group["capturable"] else "cpu")
                adam.state[p] = {"step": counter, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}


def count_once_more(adam: torch.optim.Adam) -> None:
    """Increase the counter of every parameter by one."""
    for moments in adam.state.values():
        moments["step"].add_(1)


def doubled_as(device: str | torch.device, dtype: torch.dtype = torch.float32) -> dict[str, float]:
    """The largest distance, in units of the stepsize, between Adam with a doubled list and three simple rules.

    ``two steps``: two whole steps per gradient. ``one step, counted twice``: one step whose counter goes on by 2. ``one
    step``: plain Adam.

    >>> doubled_as("cpu", torch.float64)["two steps"]
    0.0
    """
    found = _run(device, dtype, copies=2, calls=1, counted=1)
    rules = {"two steps": (1, 2, 1), "one step, counted twice": (1, 1, 2), "one step": (1, 1, 1)}
    return {name: float((_run(device, dtype, *rule) - found).abs().max()) / RATE for name, rule in rules.items()}


def _run(device: str | torch.device, dtype: torch.dtype, copies: int, calls: int, counted: int) -> Tensor:
    """Parameters after each of some steps on random gradients, [steps, matrices, 11, 11]; lists as in the notebook."""
    draw = torch.Generator().manual_seed(0)

    def normal() -> Tensor:
        return torch.randn(4 * LAYERS, SIZE, SIZE, generator=draw).to(device, dtype)

    each = [t.clone().requires_grad_() for t in normal()]
    layers = [each[k : k + 4] for k in range(0, len(each), 4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of parameters that it is given twice
        adam = torch.optim.Adam([p for layer in layers for _ in range(copies) for p in layer], lr=RATE)
    begin_moments(adam)
    passed = []
    for _ in range(STEPS):
        for p, gradient in zip(each, normal(), strict=True):
            p.grad = gradient.clone()
        for _ in range(calls):
            for _ in range(counted - 1):
                count_once_more(adam)
            adam.step()
        passed.append(torch.stack([p.detach() for p in each]))
    return torch.stack(passed)
