"""Every public function with too little memory: `python -m helpers.starved` prints what each call ends with, as JSON.

A call runs in a process of its own, forked from one that has made the same call on a tiny problem: nothing is left to import
or to compile; its memory is limited to what it has then and ``LEFT`` more.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import otformer as of
from otformer import nn

LEFT = 2**26  # bytes
TINY, MIDDLE, LARGE = 3, 1_200, 4_000  # points of a matrix
MANY = 500  # times as many points where there is no matrix
LONG = ("solve_sample, stream", "solve_streamed", "SamplesLoss, online", "assignment", "argsort", "sort")  # with so many
M_MMAP_THRESHOLD = -3  # of malloc.h
LONGEST = 60  # seconds that a call may take
SORTING = ("SoftSort", "SoftSort.rank", "SoftSort.carry")
COMPILED = ("solve, exact", "emd", "linear_sum_assignment", *SORTING)  # in other functions where a problem is not tiny
Calls = list[Callable[[], Any]]


def zeros(*shape: int) -> np.ndarray:
    """Pages that nobody has touched: a large array costs nothing before it is read."""
    return np.zeros(shape)


def costs(n: int) -> np.ndarray:
    """A matrix that no solver is done with at once."""
    return np.random.default_rng(0).random((n, n))


def tensors(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.zeros(shape, np.float32))


def points(n: int, d: int = 2) -> np.ndarray:
    """Two lists of points that differ, so that a solve has something to do."""
    return np.linspace(0, 1, n * d).reshape(n, d)


def on_a_rank(call: Callable[[], Any]) -> Any:
    """In a group of one, which a forked process has to make anew: its threads stay behind."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return call()
    finally:
        dist.destroy_process_group()


def solvers(n: int) -> dict[str, Calls]:
    M, a, x = costs(n), np.full(n, 1 / n), points(n)
    f, equal, stack = of.squared_euclidean(x, x), (np.zeros(n, int), np.zeros(n, int)), zeros(n, 100, 100)
    return {
        "solve": [lambda: of.solve(M, a, a, 0.1), lambda: of.solve(reg=0.1, b=a, a=a, M=M)],
        "solve, unbalanced": [lambda: of.solve(M, unbalanced=1.0), lambda: of.solve(M=M, unbalanced=(1.0, 2.0))],
        "solve, exact": [lambda: of.solve(M, None, None, 0), lambda: of.solve(M=M, reg=0)],
        "solve, Features": [lambda: of.solve(f, a), lambda: of.solve(M=f)],
        "solve_sample": [lambda: of.solve_sample(x, x, a, a), lambda: of.solve_sample(X_b=x, X_a=x)],
        "solve_sample, metric": [
            lambda: of.solve_sample(x, x, metric="cosine", labels=equal),
            lambda: of.solve_sample(X_a=x, X_b=x, metric=lambda x, y: x @ y.T),
        ],
        "solve_sample, Features": [
            lambda: of.solve_sample(None, None, metric=f),
            lambda: of.solve_sample(X_a=None, X_b=None, metric=f),
        ],
        "solve_batch": [lambda: of.solve_batch([zeros(2, 2), (x, x)], 0.1), lambda: of.solve_batch(problems=[(M, a, a)])],
        "solve_batch, stacked": [
            lambda: of.solve_batch(stack),
            lambda: of.solve_batch(problems=list(stack)),
        ],
        "solve_unbalanced": [lambda: of.solve_unbalanced(M, a, a, 0.1), lambda: of.solve_unbalanced(b=a, M=M)],
        "solve_partial": [lambda: of.solve_partial(M, a, a, 0.1), lambda: of.solve_partial(mass=0.5, M=M)],
        "solve_sharded": [
            lambda: on_a_rank(lambda: of.solve_sharded(x, x, a, a)),
            lambda: on_a_rank(lambda: of.solve_sharded(X_a_local=x, X_b=x)),
        ],
        "cost_matrix": [lambda: of.cost_matrix(M), lambda: of.cost_matrix(M=M)],
    }


def others(n: int) -> dict[str, Calls]:
    """Those of POT, scipy and GeomLoss."""
    M, a, x, X = costs(n), np.full(n, 1 / n), points(n), torch.from_numpy(points(n))
    loss = of.SamplesLoss("sinkhorn", backend="tensorized")
    return {
        "sinkhorn": [lambda: of.sinkhorn(a, a, M, 0.1), lambda: of.sinkhorn(reg=0.1, M=M, b=[], a=[])],
        "sinkhorn2": [lambda: of.sinkhorn2(a, a, M, 0.1), lambda: of.sinkhorn2(reg=0.1, M=M, b=[], a=[])],
        "emd": [lambda: of.emd(a, a, M), lambda: of.emd(M=M, b=[], a=[])],
        "emd2": [lambda: of.emd2(a, a, M), lambda: of.emd2(M=M, b=[], a=[])],
        "linear_sum_assignment": [
            lambda: of.linear_sum_assignment(M, True),
            lambda: of.linear_sum_assignment(cost=M.astype(np.float32)[:, : n // 2]),
        ],
        "SamplesLoss": [lambda: loss(X, X), lambda: loss(torch.from_numpy(a), X, torch.from_numpy(a), X)],
        "divergence": [lambda: of.divergence(x, x, a, a), lambda: of.divergence(y=x, x=x)],
    }


def without_matrices(n: int) -> dict[str, Calls]:
    x, values, few = points(n), points(n, 1)[:, 0], points(n // 8 + 1, 1)[:, 0]
    X, f = torch.from_numpy(x), of.squared_euclidean(x, x)
    loss, sorting, rising = of.SamplesLoss(backend="online"), nn.SoftSort(), X[:, 0]
    return {
        "solve_sample, stream": [
            lambda: of.solve_sample(x, x, None, None, 0.1, executor="stream"),
            lambda: of.solve_sample(X_a=None, X_b=None, metric=f, executor="stream"),
        ],
        "solve_streamed": [lambda: of.solve_streamed(x, x), lambda: of.solve_streamed(X_b=None, X_a=None, cost=f)],
        "SamplesLoss, online": [lambda: loss(X, X)],
        "assignment": [lambda: of.assignment(x, x), lambda: of.assignment(y=x, x=x, metric="euclidean")],
        "wasserstein_1d": [lambda: of.wasserstein_1d(x, x), lambda: of.wasserstein_1d(v_values=values, u_values=values)],
        "argsort": [lambda: of.argsort(few), lambda: of.argsort(values=few.tolist())],
        "sort": [lambda: of.sort(few), lambda: of.sort(values=few)],
        "SoftSort": [lambda: sorting(rising), lambda: sorting(mask=None, values=rising)],
        "SoftSort.rank": [lambda: sorting.rank(rising), lambda: nn.SoftRank()(values=rising)],
        "SoftSort.carry": [lambda: sorting.carry(rising, X), lambda: sorting.carry(columns=X, values=rising)],
        "SoftTopK": [lambda: nn.SoftTopK(1)(tensors(n)), lambda: nn.SoftTopK(1)(values=tensors(1, n))],
        "SoftQuantile": [lambda: nn.SoftQuantile(0.5)(tensors(n)), lambda: nn.SoftQuantile([0.5])(values=tensors(n))],
    }


def layers(n: int) -> dict[str, Calls]:
    x, logits = tensors(n, 2), tensors(n, n)
    attention = nn.SinkhornAttention(8, 2, batch_first=True)
    tokens, learned = tensors(1, n, 8), tensors(n, n).requires_grad_()
    return {
        "Transport": [lambda: nn.Transport()(x, x), lambda: nn.Transport()(cost=logits)],
        "DoublyStochastic": [
            lambda: nn.DoublyStochastic()(logits),
            lambda: nn.DoublyStochastic(iterations=3)(logits=learned),
        ],
        "SinkhornAttention": [
            lambda: attention(tokens, tokens, tokens),
            lambda: attention(value=tokens, key=tokens, query=tokens),
        ],
    }


def networks(n: int) -> dict[str, Calls]:
    x, net = points(n), of.AligningTransformer(2, 0.1, 3)
    f, stock, encoder = of.squared_euclidean(x, x), of.StockTransformer(net), of.StockEncoder(net)
    sinkhorn = of.SinkhornTransformer(2, 0.1, 3)
    return {
        "AligningTransformer": [lambda: net(x, x), lambda: net(keep="last", x=f)],
        "AligningTransformer, lists": [lambda: net([x, x[:2]], [x, x[:2]]), lambda: net(x=[f])],
        "AligningTransformer, weights": [
            lambda: of.AligningTransformer(n, 0.1, 3),
            lambda: of.AligningTransformer(depth=3, reg=0.1, dim=n),
        ],
        "SinkhornTransformer": [lambda: sinkhorn(x, x), lambda: sinkhorn(y=x, x=x)],
        "StockTransformer": [lambda: stock(x, x, attention=[1]), lambda: stock(y=x, x=x, attention=[1])],
        "StockEncoder": [lambda: encoder(x, x), lambda: encoder(y=x, x=x)],
    }


def cases(n: int, many: int) -> dict[str, Calls]:
    return solvers(n) | others(n) | layers(n) | networks(n) | without_matrices(many)


def used() -> int:
    """Bytes of address space."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def ended(call: Callable[[], Any], left: int) -> list[str]:
    """The type and the words of what a call raises, with so many bytes left."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        limit = used() + left
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        signal.alarm(LONGEST)
        try:
            call()
            said = ["", "no error"]
        except BaseException as error:
            said = [type(error).__name__, str(error)]
        os.write(writer, json.dumps(said).encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else ["", "the process died"]


def needed(said: list[str]) -> int:
    """Bytes that the line of a lack of memory names."""
    number, unit = re.findall(r"needs about ([\d.]+) ([KMG]iB)", said[1])[0]
    return int(float(number) * 1024 ** ("KMG".index(unit[0]) + 1))


def enough(call: Callable[[], Any]) -> list[str]:
    """What a call ends with that has half as much again as it says it needs."""
    said = ended(call, LEFT // 4)
    return ended(call, 3 * needed(said) // 2) if said[0] == "MemoryError" else said


def prepare() -> None:
    """Nothing but the calls has memory left: what arrays leave behind goes back to the system at once."""
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**17)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def main() -> None:
    prepare()
    tiny, middle = cases(TINY, TINY), cases(MIDDLE, MIDDLE * MANY // 4)
    for calls in [*tiny.values(), *(middle[name] for name in COMPILED)]:
        for call in calls:
            call()
    short = {name: [ended(call, LEFT) for call in calls] for name, calls in cases(LARGE, LARGE * MANY).items()}
    served = {name: enough(calls[0]) for name, calls in middle.items() if name not in LONG}
    json.dump({"short": short, "enough": served}, sys.stdout)


if __name__ == "__main__":
    main()
