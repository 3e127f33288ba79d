"""One step of a solver as a list of launches that is the same every time: captured once, and then replayed.

For a few thousand points a step's seven kernels run for less time than it takes to launch them one by one. A CUDA graph of
them is launched as one. It reads and writes the memory it was captured with, so a loop keeps its memory, and a later problem
of the same shape moves in: `borrow` and `give_back`.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from otformer.transport.costs.gpu import mixing_kernels as kernels
from otformer.transport.costs.gpu.layout import BLOCK, Side

if TYPE_CHECKING:
    from otformer.transport.costs.gpu.laid_kernel import GpuStream

CAPTURED_UP_TO = 2**30  # pairs: a pass over more takes longer than its launch
CAPTURED_AFTER = 2  # steps launched one by one: a graph has to be worth its making
KEPT = 16  # loops that wait for another problem of their shape, of 40 MB at most
KEPT_UP_TO = 2**17  # points of a side
_free: list[tuple[tuple[Any, ...], Loop]] = []  # the last given back stands last
_lock = threading.Lock()


class Loop:
    """The memory of a step over ``stream``, and the step: v → mixed v → u → residual f of v, and what the host must know."""

    def __init__(self, stream: GpuStream, memory: int) -> None:
        y, device = stream.y, stream.y.log_w.device
        m, width, numbers = len(y.log_w), max(memory, 1), stream.passes.precision.exponentials
        self.stream, self.memory = stream, memory
        n = len(stream.x.log_w)  # launching takes longer than running:
        self.small = y.log_w.is_cuda and n * m <= CAPTURED_UP_TO and max(n, m) <= KEPT_UP_TO
        self.idle = torch.cuda.Event() if self.small else None
        with torch.inference_mode(False):  # what is kept is written to outside of it, too
            self.v, self.f, self.last_v, self.last_f = y.log_w.new_zeros(4, m)
            self.u = y.log_w.new_empty(len(stream.x.log_w))
            self.moves, self.changes = y.log_w.new_empty(2, width, m, dtype=numbers)
            self.sums = y.log_w.new_empty(m // BLOCK, 3 + 2 * width)
            self.consts = y.log_w.new_zeros(4)
            pinned = partial(torch.zeros, dtype=torch.float64, pin_memory=device.type == "cuda")
            self.control, self.report = pinned(2 + width), pinned(3 + 2 * width)
            self.steering = torch.zeros_like(self.control, device=device)
            if self.small and stream.rule.labels is None:  # others' points will be written over these
                self.stream = replace(stream, x=stream.x.copy(), y=stream.y.copy())
                for side in (self.stream.x, self.stream.y):
                    _memory(side, stream)  # made here and now
        self.known = False  # whether u and v are nearly what the next step will find
        self.graph: Any = None
        self._runs = 0

    def start(self, v: Tensor, consts: Tensor) -> None:
        """From v at the λ of ``consts``."""
        self.restart(v, torch.zeros_like(v))
        self.consts.copy_(consts)

    def restart(self, v: Tensor, f: Tensor) -> None:
        """From v + f."""
        self.v.copy_(v)
        self.f.copy_(f)
        self.known = False

    def expect(self, u: Tensor) -> None:
        """u is nearly that of the next step."""
        self.u.copy_(u)
        self.known = True

    def run(self, slot: int, theta: np.ndarray | None) -> np.ndarray:
        """One step; the change it brings is kept in ``slot``. Returns the sums of `remember`."""
        control, used = self.control.numpy(), 0 if theta is None else len(theta)
        control[0], control[1] = slot, used
        if theta is not None:
            control[2 : 2 + used] = theta
        if self.graph is None and self._runs >= CAPTURED_AFTER and self.small:
            self._capture()
        if self.graph is not None:
            self.graph.replay()
        else:
            self._body()
        self._runs += 1
        if self.steering.is_cuda:
            torch.cuda.current_stream().synchronize()
        return self.report.numpy()

    def _body(self) -> None:
        x, y, passes = self.stream.x, self.stream.y, self.stream.passes
        columns, m = passes.new_columns(y), len(self.v)
        squares = passes.squares_of(y)
        self.steering.copy_(self.control, non_blocking=True)
        past = self.v, self.f, self.last_v, self.last_f
        kernels.advance[(m // BLOCK,)](
            *past, self.moves, self.steering, y.numbers(passes.precision), squares, *columns, m,
            MEMORY=1 << (len(self.moves) - 1).bit_length(), **passes.shape_of(y),
        )  # fmt: skip
        reg = self.consts[1]
        known = (x.sums_of(self.u, reg), y.sums_of(self.v, reg)) if self.hinted else (None, None)
        _, others = passes.settle(x, passes.sums(x, y, columns, self.consts, known[0]), self.consts, self.u)
        passes.residual(y, passes.sums(y, x, others, self.consts, known[1]), self.consts, self.v, self.f)
        kernels.remember[(m // BLOCK, len(self.moves))](
            *past, y.log_w, self.consts, self.moves, self.changes, self.steering, self.sums, m, self.sums.shape[1],
            BLOCK=BLOCK,
        )  # fmt: skip
        self.report.copy_(self.sums.sum(0), non_blocking=True)

    @property
    def hinted(self) -> bool:
        """Whether the next step makes use of what is known; small ones are all alike, so that they can be replayed."""
        return self.known and not self.small

    def _capture(self) -> None:
        here, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(here)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(side), torch.inference_mode(False), torch.no_grad():
            graph.capture_begin(capture_error_mode="thread_local")
            self._body()
            graph.capture_end()
        here.wait_stream(side)
        self.graph = graph

    def move_in(self, stream: GpuStream) -> None:
        """The points and weights of another problem of this shape."""
        for own, new in ((self.stream.x, stream.x), (self.stream.y, stream.y)):
            for mine, other in zip(_memory(own, stream), _memory(new, stream), strict=True):
                mine.copy_(other)


def _memory(side: Side, stream: GpuStream) -> list[Tensor]:
    """All that a step reads of a side."""
    precision = stream.passes.precision
    return [side.log_w, side.numbers(precision), side.boxes(precision) if side.near else side.squares]


def borrow(stream: GpuStream, memory: int) -> Loop:
    """A loop for a stream, its points moved into one that is captured already if there is one."""
    key = _key(stream, memory)
    with _lock:
        at = next((k for k in range(len(_free) - 1, -1, -1) if _free[k][0] == key), None)
        loop = None if at is None else _free.pop(at)[1]
    if loop is None:
        return Loop(stream, memory)
    assert loop.idle is not None
    torch.cuda.current_stream().wait_event(loop.idle)
    loop.move_in(stream)
    return loop


def give_back(loop: Loop) -> None:
    """The loop waits for another problem of its shape, if it is a small one; the one unused for longest makes room."""
    if not loop.small or loop.stream.rule.labels is not None:
        return
    assert loop.idle is not None
    loop.idle.record()  # what was read of it may be under way, on a stream that is not the next one's
    with _lock:
        _free.append((_key(loop.stream, loop.memory), loop))
        del _free[:-KEPT]


def _key(stream: GpuStream, memory: int) -> tuple[Any, ...]:
    """What a captured step is made for."""
    shapes = tuple((side.points.shape, side.tiled) for side in (stream.x, stream.y))
    return stream.x.log_w.device, shapes, stream.precision, stream.rule.root, stream.rule.labels is None, memory
