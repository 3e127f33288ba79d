"""Matcher against DETR's HungarianMatcher, written anew from its definition: costs by hand, and a loop over scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from otformer.nn.matcher import Matcher


def corners(boxes):
    x, y, w, h = boxes.T
    return np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], 1)


def giou(a, b):
    """Of one box and another, (x0, y0, x1, y1), by hand."""
    area = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    inside = max(min(a[2], b[2]) - max(a[0], b[0]), 0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    around = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    union = sum(area) - inside
    return inside / union - (around - union) / around


def class_costs(logits, labels, kind):
    """[Q, T]"""
    logits = logits.astype(np.float64)
    if kind == "softmax":
        p = np.exp(logits - logits.max(1, keepdims=True))
        return -(p / p.sum(1, keepdims=True))[:, labels]
    p = 1 / (1 + np.exp(-logits))
    negative = 0.75 * p**2 * -np.log(1 - p + 1e-8)
    positive = 0.25 * (1 - p) ** 2 * -np.log(p + 1e-8)
    return (positive - negative)[:, labels]


def costs(outputs, targets, weights, kind):
    """A cost [Q, T] for every image, in float64."""
    found = []
    for logits, boxes, target in zip(outputs["pred_logits"], outputs["pred_boxes"], targets, strict=True):
        boxes, own = boxes.double().numpy(), target["boxes"].double().numpy()
        overlap = np.array([[giou(a, b) for b in corners(own)] for a in corners(boxes)]).reshape(len(boxes), len(own))
        far = abs(boxes[:, None] - own).sum(2)
        labelled = class_costs(logits.double().numpy(), target["labels"].numpy(), kind)
        found.append(weights[0] * labelled + weights[1] * far - weights[2] * overlap)
    return found


def draw(seed, images=6, queries=20, classes=7, most=12, dtype=torch.float32):
    """Outputs, and targets with no objects at times, at others with more than queries."""
    rng = np.random.default_rng(seed)

    def boxes(*lead):
        return torch.tensor(np.concatenate([rng.random((*lead, 2)), 0.01 + 0.4 * rng.random((*lead, 2))], -1)).to(dtype)

    outputs = {
        "pred_logits": torch.tensor(rng.standard_normal((images, queries, classes))).to(dtype),
        "pred_boxes": boxes(images, queries),
    }
    counts = rng.integers(0, most, images)
    targets = [{"labels": torch.tensor(rng.integers(0, classes, n)), "boxes": boxes(n)} for n in counts]
    return outputs, targets


@pytest.mark.parametrize("kind", ["softmax", "focal"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_matches_are_DETRs(kind, dtype):
    for seed in range(6):
        weights = (1.0, 5.0, 2.0) if seed % 2 else (2.0, 0.0, 1.0)
        outputs, targets = draw(seed, queries=20 if seed else 4, dtype=dtype)
        found = Matcher(*weights, class_cost_type=kind)(outputs, targets)
        for C, (i, j) in zip(costs(outputs, targets, weights, kind), found, strict=True):
            assert i.dtype == j.dtype == torch.int64
            rows, columns = linear_sum_assignment(C)
            if dtype == torch.float64:
                assert (i.tolist(), j.tolist()) == (rows.tolist(), columns.tolist())
            assert (i.diff() > 0).all()
            assert len(set(j.tolist())) == len(j) == min(C.shape)
            assert C[i, j].sum() == pytest.approx(C[rows, columns].sum(), abs=1e-5)


def test_cost_is_DETRs():
    outputs, targets = draw(1, dtype=torch.float64)
    for kind in ("softmax", "focal"):
        expected = np.concatenate([C.T for C in costs(outputs, targets, (1.0, 5.0, 2.0), kind)])
        np.testing.assert_allclose(Matcher(class_cost_type=kind).cost(outputs, targets), expected, atol=1e-12)


def test_no_objects():
    outputs, targets = draw(2)
    none = [{"labels": target["labels"][:0], "boxes": target["boxes"][:0]} for target in targets]
    assert [[len(t) for t in pair] for pair in Matcher()(outputs, none)] == [[0, 0]] * 6
    assert Matcher()({name: t[:0] for name, t in outputs.items()}, []) == []
    assert [len(i) for i, _ in Matcher()({name: t[:, :0] for name, t in outputs.items()}, targets)] == [0] * 6


def test_boxes_without_an_area():
    outputs, targets = draw(3, most=8)
    outputs["pred_boxes"][:, :10, 2:] = 0.0
    outputs["pred_boxes"][:, 10:, 2] = 0.0
    for target in targets:
        target["boxes"] = target["boxes"] * torch.tensor([1.0, 1.0, 0.0, 1.0])
    matcher = Matcher()
    assert bool(matcher.cost(outputs, targets).isfinite().all())
    assert sum(len(i) for i, _ in matcher(outputs, targets)) == sum(len(target["labels"]) for target in targets)


def test_equal_boxes_match_each_other():
    outputs, targets = draw(4, images=3, most=20)
    for k, target in enumerate(targets):
        target["boxes"] = outputs["pred_boxes"][k].flip(0)[: len(target["labels"])].clone()
    for i, j in Matcher(class_cost=0.0)(outputs, targets):
        assert (i + j == 19).all()


def test_costs_of_ones_own():
    class Forbidding(Matcher):
        def cost(self, outputs, targets):
            costs = super().cost(outputs, targets)
            costs[:, ::2] = torch.inf
            return costs

    outputs, targets = draw(5, most=8)
    assert all((i % 2 == 1).all() for i, _ in Forbidding()(outputs, targets))
    targets[2] = {"labels": torch.zeros(11, dtype=torch.int64), "boxes": torch.rand(11, 4)}
    with pytest.raises(ValueError, match="image 2: cost matrix is infeasible"):
        Forbidding()(outputs, targets)


def test_no_gradient_and_other_keys():
    outputs, targets = draw(6)
    outputs = {name: t.requires_grad_() for name, t in outputs.items()} | {"aux_outputs": []}
    targets = [{**target, "masks": None} for target in targets]
    assert not any(t.requires_grad for pair in Matcher()(outputs, targets) for t in pair)


def set_at(t, where, value):
    t[where] = value


BROKEN = {
    "pred_logits of image 4 must be finite, got nan": lambda o, t: set_at(o["pred_logits"], (4, 2, 1), torch.nan),
    "pred_boxes of image 4 must be finite, got inf": lambda o, t: set_at(o["pred_boxes"], (4, 0, 1), torch.inf),
    "pred_boxes of image 4 must have widths and heights of 0": lambda o, t: set_at(o["pred_boxes"], (4, 0, 2), -0.1),
    "boxes of image 4 must be finite, got nan": lambda o, t: set_at(t[4]["boxes"], (0, 0), torch.nan),
    "boxes of image 4 must have widths and heights": lambda o, t: set_at(t[4]["boxes"], (0, 3), -1.0),
    "labels of image 4 must be from 0 to 6, got 7": lambda o, t: set_at(t[4]["labels"], 0, 7),
    "labels of image 4 must be from 0 to 6, got -1": lambda o, t: set_at(t[4]["labels"], 0, -1),
    "outputs must be a dict with pred_logits and pred_boxes, got no pred_boxes": lambda o, t: o.pop("pred_boxes"),
    r"pred_boxes must have shape \(6, 20, 4\)": lambda o, t: o.update(pred_boxes=torch.zeros(6, 20, 5)),
    r"pred_logits must be a tensor of floats \(B, Q, K\)": lambda o, t: o.update(pred_logits=torch.zeros(6, 20)),
    "targets must be 6 dicts, one for each image, got 5": lambda o, t: t.pop(),
    r"labels of image 1 must be a tensor of whole numbers \(T,\)": lambda o, t: t[1].update(labels=torch.zeros(3)),
    r"boxes of image 1 must be a tensor of floats \(3, 4\)": lambda o, t: t[1].update(labels=torch.zeros(3).long()),
    "boxes of image 2 must be on cpu": lambda o, t: t[2].update(boxes=t[2]["boxes"].to("meta")),
}


@pytest.mark.parametrize("message", BROKEN)
def test_what_is_wrong_is_named(message):
    outputs, targets = draw(7)
    targets[4] = {"labels": torch.tensor([0, 1]), "boxes": torch.full((2, 4), 0.5)}
    targets[1] = {"labels": torch.tensor([0, 1]), "boxes": torch.full((2, 4), 0.5)}
    BROKEN[message](outputs, targets)
    with pytest.raises(ValueError, match=f"^{message}"):
        Matcher()(outputs, targets)


def test_settings():
    for settings in ({"class_cost": -1.0}, {"box_cost": float("nan")}, {"class_cost_type": "hinge"}):
        with pytest.raises(ValueError, match=f"^{next(iter(settings))} must be"):
            Matcher(**settings)
    with pytest.raises(ValueError, match="class_cost, box_cost and giou_cost must not all be 0"):
        Matcher(0, 0, 0)
    assert "box_cost=5" in repr(Matcher())


def test_a_cost_of_a_wrong_shape_is_named():
    class Wrong(Matcher):
        def cost(self, outputs, targets):
            return super().cost(outputs, targets)[:, 1:]

    with pytest.raises(ValueError, match=r"cost\(outputs, targets\) must give a tensor \(.*, 20\), a row for each object"):
        Wrong()(*draw(8))
