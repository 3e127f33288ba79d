"""Batched linear_sum_assignment and nn.Matcher beside what detectors and trackers have now: a loop over scipy, on a CPU.

    python bench/matching.py --sets 10000
    python bench/matching.py [--shapes detr square …] [--families uniform ties …] [--repeat 9] [--threads 1]

**Shapes.** detr: 96 of 300 × 1…60, as of DETR's queries and objects; square: 96 of n × n, n ≤ 100; near: 8 of 300 × 280;
wide: 4 of 100 × 5,000; small: 500 of 5 × 5; large: 2 of 600 × 600.

**Families.** detr: −probability + 5 L1 − 2 GIoU of drawn boxes; uniform; ties: whole numbers 0…9; permutation: one cheap
entry in most rows; forbidden: 70 % of the pairs; track: distances of points in the plane; product: x_i y_j, long paths.

**Columns.** Milliseconds for all problems, of processor time and of wall clock, the best of ``--repeat`` turns, in which all
sides take part: scipy, one call for each matrix; ours, of a list of float64 arrays; of a list of float32 tensors; of a stack
[B, n, m] with sizes, in float32. ratio: scipy's by ours, of arrays, processor time. equal: problems whose cost is scipy's to
1e-12 of the sum of its terms.

``--sets``: so many problems of up to 40 × 40, of all families in turn, a third with ties, a third with inf, every tenth
empty, in one call; how many have scipy's cost, and how many are infeasible for both, are printed, and nothing is timed.

The last lines are whole matchers: `nn.Matcher` beside DETR's, written here from its definition (a cost of all queries of the
batch for all objects of the batch, then scipy on the blocks), from logits and boxes to pairs, in float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment as of_scipy

import otformer as of
from otformer.nn.matcher import Matcher

Draw = Callable[[np.random.Generator, int, int], np.ndarray]
CLASSES, WEIGHTS = 91, (1.0, 5.0, 2.0)
EQUAL = 1e-12  # of Σ |C| over scipy's pairs


def boxes(rng: np.random.Generator, n: int) -> np.ndarray:
    """(cx, cy, w, h), [n, 4]."""
    return np.concatenate([rng.random((n, 2)), 0.01 + 0.3 * rng.random((n, 2))], 1)


def detr(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    outputs = {
        "pred_logits": torch.tensor(rng.standard_normal((1, n, CLASSES))),
        "pred_boxes": torch.tensor(boxes(rng, n))[None],
    }
    targets = [{"labels": torch.tensor(rng.integers(0, CLASSES, m)), "boxes": torch.tensor(boxes(rng, m))}]
    return np.ascontiguousarray(Matcher(*WEIGHTS).cost(outputs, targets).T.numpy())


def permutation(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    C, k = 1 + 0.1 * rng.random((n, m)), min(n, m)
    C[rng.permutation(n)[:k], rng.permutation(m)[:k]] -= 1
    return C


def forbidden(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    kept = (permutation(rng, n, m) < 0.5) | (rng.random((n, m)) < 0.3)  # so that there is an assignment
    return np.where(kept, rng.random((n, m)), np.inf)


def track(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    return np.linalg.norm(rng.random((n, 1, 2)) - rng.random((m, 2)), axis=2)


FAMILIES: dict[str, Draw] = {
    "detr": detr,
    "uniform": lambda rng, n, m: rng.random((n, m)),
    "ties": lambda rng, n, m: rng.integers(0, 10, (n, m)).astype(float),
    "permutation": permutation,
    "forbidden": forbidden,
    "track": track,
    "product": lambda rng, n, m: np.outer(rng.random(n), rng.random(m)),
}
SHAPES: dict[str, Callable[[np.random.Generator], list[tuple[int, int]]]] = {
    "detr": lambda rng: [(300, int(m)) for m in rng.integers(1, 61, 96)],
    "square": lambda rng: [(int(n), int(n)) for n in rng.integers(1, 101, 96)],
    "near": lambda rng: [(300, 280)] * 8,
    "wide": lambda rng: [(100, 5000)] * 4,
    "small": lambda rng: [(5, 5)] * 500,
    "large": lambda rng: [(600, 600)] * 2,
}


def in_turns(sides: dict[str, Callable[[], Any]], repeat: int) -> tuple[dict[str, tuple[float, float]], dict[str, Any]]:
    """The best processor and wall-clock seconds of each side, and what it returns; first calls do not count."""
    best, found = dict.fromkeys(sides, (np.inf, np.inf)), {name: call() for name, call in sides.items()}
    for _ in range(repeat):
        for name, call in sides.items():
            start = time.process_time(), time.perf_counter()
            call()
            seconds = time.process_time() - start[0], time.perf_counter() - start[1]
            best[name] = min(best[name][0], seconds[0]), min(best[name][1], seconds[1])
    return best, found


def padded(costs: list[np.ndarray]) -> tuple[torch.Tensor, np.ndarray]:
    """A stack in float32, and the sizes [B, 2]."""
    sizes = np.array([C.shape for C in costs])
    stack = torch.zeros(len(costs), *sizes.max(0).tolist())
    for own, C in zip(stack, costs, strict=True):
        own[: C.shape[0], : C.shape[1]] = torch.from_numpy(C)
    return stack, sizes


def compare(shape: str, family: str, repeat: int) -> None:
    rng = np.random.default_rng(0)
    costs = [FAMILIES[family](rng, n, m) for n, m in SHAPES[shape](rng)]
    tensors, (stack, sizes) = [torch.tensor(C, dtype=torch.float32) for C in costs], padded(costs)
    sides = {
        "scipy": lambda: [of_scipy(C) for C in costs],
        "arrays": lambda: of.linear_sum_assignment(costs),
        "tensors": lambda: of.linear_sum_assignment(tensors),
        "stack": lambda: of.linear_sum_assignment(stack, row_sizes=sizes[:, 0], col_sizes=sizes[:, 1]),
    }
    best, found = in_turns(sides, repeat)
    equal = sum(
        bool(abs(C[ours].sum() - C[theirs].sum()) <= EQUAL * abs(C[theirs]).sum())
        for C, ours, theirs in zip(costs, found["arrays"], found["scipy"], strict=True)
    )
    times = "".join(f"{1e3 * cpu:9.2f}{1e3 * wall:8.2f}" for cpu, wall in best.values())
    print(f"{shape:8}{family:13}{times}{best['scipy'][0] / best['arrays'][0]:8.2f}{equal:7}/{len(costs)}", flush=True)


def theirs(outputs: dict[str, torch.Tensor], targets: list[dict[str, torch.Tensor]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """DETR's matcher: costs [B, Q, N] of the whole batch, and scipy on the block of each image."""
    logits, predicted = outputs["pred_logits"], outputs["pred_boxes"].flatten(0, 1)
    labels, wanted = (torch.cat([target[name] for target in targets]) for name in ("labels", "boxes"))
    C = -WEIGHTS[0] * logits.flatten(0, 1).softmax(-1)[:, labels] + WEIGHTS[1] * torch.cdist(predicted, wanted, p=1)
    (a, b), (s, t) = ((x[:, :2] - x[:, 2:] / 2, x[:, :2] + x[:, 2:] / 2) for x in (predicted, wanted))
    inside = (torch.min(b[:, None], t) - torch.max(a[:, None], s)).clamp(min=0).prod(2)
    union = (b - a).prod(1)[:, None] + (t - s).prod(1) - inside
    around = (torch.max(b[:, None], t) - torch.min(a[:, None], s)).clamp(min=0).prod(2)
    C = (C - WEIGHTS[2] * (inside / union - (around - union) / around)).view(*logits.shape[:2], -1)
    return [of_scipy(c[k]) for k, c in enumerate(C.split([len(target["labels"]) for target in targets], -1))]


def matchers(images: int, most: int, repeat: int) -> None:
    rng = np.random.default_rng(0)
    outputs = {
        "pred_logits": torch.tensor(rng.standard_normal((images, 300, CLASSES)), dtype=torch.float32),
        "pred_boxes": torch.tensor(np.stack([boxes(rng, 300) for _ in range(images)]), dtype=torch.float32),
    }
    targets = [
        {"labels": torch.tensor(rng.integers(0, CLASSES, n)), "boxes": torch.tensor(boxes(rng, n), dtype=torch.float32)}
        for n in rng.integers(0, most + 1, images).tolist()
    ]
    matcher = Matcher(*WEIGHTS)
    sides = {"DETR's": lambda: theirs(outputs, targets), "Matcher": lambda: matcher(outputs, targets)}
    best, found = in_turns(sides, repeat)
    same = sum(
        (i.tolist(), j.tolist()) == (rows.tolist(), columns.tolist())
        for (i, j), (rows, columns) in zip(found["Matcher"], found["DETR's"], strict=True)
    )
    times = "".join(f"  {name} {1e3 * cpu:.1f}, {1e3 * wall:.1f} ms" for name, (cpu, wall) in best.items())
    ratio = best["DETR's"][1] / best["Matcher"][1]
    print(f"matcher, {images} images, 300 × 0…{most}:{times}  ratio {ratio:.2f}  same pairs {same}/{images}", flush=True)


def draw_set(rng: np.random.Generator, k: int) -> np.ndarray:
    """A cost of up to 40 × 40 of family k; one without rows or columns in every tenth."""
    n, m = (int(size) for size in rng.integers(1, 41, 2))
    if k % 10 == 0:
        return np.zeros((n, 0) if k % 20 else (0, m))
    C = [*FAMILIES.values()][k % len(FAMILIES)](rng, n, m)
    if k % 3 == 1:
        C = np.round(4 * C)
    if k % 3 == 2:
        C = np.where(rng.random((n, m)) < rng.random() / 2, np.inf, C)
    return C


def count_equal(sets: int) -> None:
    """Solve so many problems in one call, and print how many have scipy's cost."""
    rng = np.random.default_rng(0)
    costs, best, infeasible = [], [], 0
    for k in range(sets):
        C = draw_set(rng, k)
        try:
            best.append(C[of_scipy(C)].sum())
            costs.append(C)
        except ValueError:
            infeasible += refused(C)
    found = of.linear_sum_assignment(costs)
    sizes = sum(len(i) == min(C.shape) for C, (i, _) in zip(costs, found, strict=True))
    off = [abs(C[pairs].sum() - value) for C, pairs, value in zip(costs, found, best, strict=True)]
    terms = (abs(C[pairs]).sum() for C, pairs in zip(costs, found, strict=True))
    equal = sum(bool(d <= EQUAL * max(t, 1)) for d, t in zip(off, terms, strict=True))
    print(f"{sets} sets: {len(costs)} feasible, {sum(not C.size for C in costs)} of them empty;")
    print(f"{equal} with scipy's cost, {sizes} with as many pairs, largest difference {max(off):.1e};")
    print(f"{sets - len(costs)} infeasible for scipy, {infeasible} of them refused here")


def refused(C: np.ndarray) -> bool:
    try:
        of.linear_sum_assignment(C)
    except ValueError as error:
        return "infeasible" in str(error)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=[*SHAPES], choices=[*SHAPES])
    parser.add_argument("--families", nargs="*", default=[*FAMILIES], choices=[*FAMILIES])
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sets", type=int, help="compare so many costs with scipy's, and time nothing")
    given = parser.parse_args()
    if given.sets:
        return count_equal(given.sets)
    torch.set_num_threads(given.threads)
    names = "".join(f"{name:>17}" for name in ("scipy", "arrays", "tensors", "stack"))
    print(f"{'':21}{names}{'ratio':>8}{'equal':>7}\n{'':21}" + f"{'cpu':>9}{'wall':>8}" * 4)
    for shape in given.shapes:
        for family in given.families:
            compare(shape, family, given.repeat)
    for images, most in ((2, 60), (8, 60), (24, 60)):
        matchers(images, most, given.repeat)


if __name__ == "__main__":
    main()
