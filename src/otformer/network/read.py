"""From what a user gives (points, batches, ragged lists, features, weights) to a checked prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from otformer.errors import ArgumentError
from otformer.memory import Need, matrices, shape
from otformer.network.features import Features, pair
from otformer.network.prompt import ABSENT, Prompt, engineered, fill_weights
from otformer.network.registers import Registers

Scale = Literal["auto"] | None
SinkValue = Literal["one", "mean"]


class Prompted(nn.Module):
    """A network that reads the engineered prompt, for its registers and sink."""

    registers: Registers
    sink: str
    sink_value: SinkValue = "one"
    scale: Scale
    reg: Tensor  # every λ of its layers, in the dtype of its weights and on their device

    def prompt(self, x: Any, y: Any = None, a: Any = None, b: Any = None) -> Prompt:
        """The engineered prompt of a problem, checked; a prompt as it is, if it has this network's registers."""
        if isinstance(x, Prompt):
            return self._read(x, y, a, b)
        if _lists_problems(x):
            features, a, b = _ragged(x, y, a, b, self.scale)
        elif isinstance(x, Features):
            if y is not None:
                raise ArgumentError("y", "be left out when x is a Features value, which holds both sides")
            features = x
        elif y is None:
            raise ValueError("y is missing: give points x and y, or one Features value")
        else:
            features = _squared_euclidean(x, y, self.scale)
        if features.x.shape[-1] != self.registers.dim:
            raise ArgumentError("x", f"have {self.registers.dim} coordinates", f"shape {tuple(features.x.shape)}")
        self._check_numbers(features.x)
        prompt = engineered(features, self.registers, a, b, auto=self.scale == "auto", mean=self.sink_value == "mean")
        self._check_absent(prompt)
        return prompt

    def _read(self, prompt: Prompt, *others: Any) -> Prompt:
        """A prompt that was made before, and perhaps edited."""
        if any(each is not None for each in others):
            raise ArgumentError("y, a and b", "be left out when x is a prompt, which holds both sides and their weights")
        if prompt.registers != self.registers:
            wanted, found = f"have this network's {self.registers}", repr(prompt.registers)
            raise ArgumentError("the prompt", wanted, found, "make it with the network's prompt(x, y)")
        self._check_numbers(prompt.Z)
        self._check_absent(prompt)
        return prompt

    def _check_numbers(self, x: Tensor) -> None:
        """Raise ValueError unless points, or a prompt, are where the network is, and of a dtype that holds ABSENT/λ."""
        reg = float(self.reg.min())
        if x.device != self.reg.device:
            raise ValueError(f"x is on {x.device}, the network on {self.reg.device}: move one of them")
        if self.reg.dtype not in (torch.float32, torch.float64):
            raise ArgumentError("the network", "be float32 or float64", str(self.reg.dtype).removeprefix("torch."))
        if not ABSENT / reg < torch.finfo(x.dtype).max / 4:
            raise ValueError(f"reg is too small for {x.dtype}: {ABSENT:g}/reg must be a number, got reg = {reg:g}")

    def _check_absent(self, prompt: Prompt) -> None:
        """Raise ValueError if absent points would be seen."""
        if self.sink == "token" and not prompt.complete:
            # The updated sink has one1 = 0: it does not read the squares, so it would count absent points as present.
            raise ValueError("sink='token' needs as many x as y and no absent points: use sink='frozen'")
        if float(self.reg.max()) > ABSENT / 1e3 and not prompt.complete:  # up to there exp(−ABSENT/λ) is 0
            most, got = f"at most {ABSENT / 1e3:g} where points are absent or n ≠ m", f"{float(self.reg.max()):g}"
            raise ArgumentError("reg", f"be {most}", got, "an absent point would be attended to")

    def _need(self, x: Any, y: Any, held: int) -> Need:
        """Of attention between all tokens: so many matrices at once for each problem."""
        if isinstance(x, Prompt):
            return self._need_of(len(x.Z), x.Z.shape[1], held)
        each = list(x) if _lists_problems(x) else [x]
        points = [t for f in each if isinstance(f, Features) for t in (f.x, f.y)] or [*each, *(y if len(each) > 1 else [y])]
        count, tokens = len(each) * math.prod(shape(points[0])[:-2]), max(shape(t)[-2] for t in points) + 1
        return self._need_of(count, tokens, held)

    @staticmethod
    def _need_of(count: int, tokens: int, held: int) -> Need:
        what = matrices("attention", tokens, tokens, count)
        return Need(what, held * count * tokens**2, "give fewer points, or solve_sample(…, executor='stream')")


def _squared_euclidean(x: Any, y: Any, scale: Scale) -> Features:
    """Features of points; with a scale they are centred first, which changes no distance and keeps digits."""
    x, y = pair(x, y)
    if scale == "auto" and x.shape[-2] and y.shape[-2]:
        middle = torch.cat([x, y], dim=-2).detach().median(-2, keepdim=True).values  # few absent points far away do no harm
        x, y = x - middle, y - middle
    return Features.of_points(x, y)


def _lists_problems(x: Any) -> bool:
    """Whether x lists problems (each a matrix of points) rather than being one matrix as a list of rows."""
    if not isinstance(x, (list, tuple)) or not x:
        return False
    return all(isinstance(each, Features) or (isinstance(each, (Tensor, np.ndarray)) and each.ndim == 2) for each in x)


def _ragged(x: Sequence[Any], y: Any, a: Any, b: Any, scale: Scale) -> tuple[Features, Tensor, Tensor]:
    """Lists of problems as one padded batch; each keeps its own default weights."""
    if all(isinstance(each, Features) for each in x):
        if y is not None:
            raise ArgumentError("y", "be left out when x lists Features values, which hold both sides")
        problems = list(x)
    else:
        if y is None or len(y) != len(x):
            raise ArgumentError("y", f"list as many problems as x ({len(x)})", "nothing" if y is None else len(y))
        problems = [_squared_euclidean(one, other, scale) for one, other in zip(x, y, strict=True)]
    for name, weights in (("a", a), ("b", b)):
        if weights is not None and len(weights) != len(x):
            raise ArgumentError(name, f"list one weight vector per problem ({len(x)})", len(weights))
    kinds = {(f.x.shape[-1], f.x.dtype, f.x.device) for f in problems}
    if len(kinds) > 1:
        raise ArgumentError("problems", "agree in dimension, dtype and device", sorted(map(str, kinds)))
    filled = [fill_weights(f, None if a is None else a[k], None if b is None else b[k]) for k, f in enumerate(problems)]
    sides = zip(*((f.x, f.y, f.x_sq, f.y_sq, *weights) for f, weights in zip(problems, filled, strict=True)), strict=True)
    *padded, a, b = (pad_sequence(list(side), batch_first=True) for side in sides)  # with zeros: weight 0 is absent
    return Features(*padded), a, b
