"""Families of exact transport in training: batches of clouds, matchings of detectors, couplings for flow matching."""

from __future__ import annotations

import numpy as np
import ot
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fuzz import oracles
from fuzz.inputs import Rng, array, number, pick, plain, size, tensor
from fuzz.layers import CLOSE, DTYPES, Told, differentiated, given, mask
from fuzz.public import of


def _optimum(x: np.ndarray, y: np.ndarray, metric: str) -> float:
    """POT's value of two clouds whose points are equally heavy."""
    n, m = len(x), len(y)
    return float(ot.emd2(np.full(n, 1 / n), np.full(m, 1 / m), cdist(x, y, metric)))


def earth_movers(rng: Rng, told: Told) -> None:
    n, m, d, lead = size(rng), size(rng), max(1, size(rng)), pick(rng, ((), (2,), (0,)))
    metric, dtype = pick(rng, ("sqeuclidean", "euclidean")), pick(rng, DTYPES)
    x, y = (tensor(rng, array(rng, (*lead, k, d)), (dtype,)) for k in (n, m))
    masks = mask(rng, (*lead, n)), mask(rng, (*lead, m))
    if rng.random() < 0.3:
        loss = of.nn.EarthMover(number(rng, (metric,)), number(rng, ("none", "sum")))
        return differentiated(loss(x, y, None, None, *masks).to(dtype), x, told)
    found: of.EarthMovers = of.emd_batch(x, y, None, None, *masks, metric=metric)
    oracles.finite(found.cost, found.gap)
    assert found.cost.dtype == (torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype)
    rows, columns = (np.ones((*lead, k), bool) if t is None else plain(t) > 0 for k, t in zip((n, m), masks, strict=True))
    costs, smallest = plain(found.cost), 10 * torch.finfo(found.cost.dtype).tiny
    for at in np.ndindex(lead):
        expected = _optimum(plain(x)[at][rows[at]], plain(y)[at][columns[at]], metric)
        allowed = max(1e-6, CLOSE[dtype] / 10) * abs(expected) + smallest
        assert abs(costs[at] - expected) <= allowed, "another value than POT's"


def matchings(rng: Rng, told: Told) -> None:
    """A detector's matching: its pairs cost what scipy's do, for costs computed with the same `cost`."""
    count, queries, classes = pick(rng, (0, 1, 2)), max(1, size(rng)), max(1, size(rng))
    matcher = of.nn.Matcher(
        number(rng, (0.0, 1.0)), number(rng, (1.0, 5.0)), number(rng, (0.0, 2.0)), pick(rng, ("softmax", "focal"))
    )
    outputs = {"pred_logits": given(rng, (count, queries, classes)), "pred_boxes": given(rng, (count, queries, 4))}
    boxes = outputs["pred_boxes"]
    dtype = boxes.dtype if isinstance(boxes, torch.Tensor) else torch.float32
    if rng.mild:
        outputs["pred_boxes"] = boxes.abs()
    targets = []
    for _ in range(count):
        k = size(rng)
        labels = torch.tensor(rng.integers(0, classes + (not rng.mild and rng.random() < 0.1), k))
        targets.append({"labels": labels, "boxes": torch.tensor(np.abs(array(rng, (k, 4)))).to(dtype)})
    found = matcher(outputs, targets)
    sizes = [len(target["labels"]) for target in targets]
    costs = plain(matcher.cost(outputs, targets)) if sum(sizes) else np.zeros((0, queries))
    for (i, j), C in zip(found, np.split(costs, np.cumsum(sizes)[:-1]) if sizes else [], strict=True):
        rows, columns = linear_sum_assignment(C)
        ours, theirs = C[plain(j).astype(int), plain(i).astype(int)].sum(), C[rows, columns].sum()
        assert len(i) == min(C.shape)
        assert abs(ours - theirs) <= 1e-9 * max(1e-300, abs(C).sum()), "another cost than scipy's"


def couplings(rng: Rng, told: Told) -> None:
    n, m, shape = size(rng), size(rng), pick(rng, ((1,), (2,), (2, 2)))
    dtype = pick(rng, DTYPES)
    x0, x1 = (tensor(rng, array(rng, (k, *shape)), (dtype,)) for k in (n, m))
    method = number(rng, ("exact", "exact", "sinkhorn"))
    sampler = of.nn.OTPlanSampler(method, number(rng, (0.05, 1.0)), normalize_cost=bool(rng.integers(2)), generator=0)
    if method != "exact" or rng.random() < 0.3:
        y0, y1 = sampler.sample_plan(x0, x1)
        assert (y0.shape[1:], y1.dtype, len(y0)) == (x0.shape[1:], x1.dtype, len(y1))
        return oracles.finite(y0, y1)
    table = sampler.table(x0, x1)
    i, j, masses = (plain(t) for t in (table.i, table.j, table.masses))
    if n and m:
        x, y = (plain(t).reshape(len(t), -1) for t in (x0, x1))
        unit = max(abs(x).max(), abs(y).max(), 1e-300)  # squares of what is larger than 1e154 overflow
        x, y = x / unit, y / unit
        cost = float((((x[i.astype(int)] - y[j.astype(int)]) ** 2).sum(1) * masses).sum())
        expected = _optimum(x, y, "sqeuclidean")
        assert abs(cost - expected) <= 1e-6 * expected + 1e-280, "another value than POT's"
    return None


FAMILIES = (earth_movers, matchings, couplings)
