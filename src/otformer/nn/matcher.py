r"""`Matcher`: which query of a detector answers for which object, in the place of DETR's HungarianMatcher.

The cost of a query with logits ℓ and box b for an object with label y and box t is

    class_cost · C(ℓ, y) + box_cost · ‖b − t‖₁ + giou_cost · (−GIoU(b, t)),        C = −softmax(ℓ)_y,

or, "focal", as in Deformable DETR, with p = sigmoid(ℓ)_y, α = 0.25, γ = 2

    C = −α (1 − p)^γ log p + (1 − α) p^γ log(1 − p).

Objects of all images follow each other: costs [N, Q], of each of the N objects for the Q queries of its own image alone.
They cross to the CPU once. DETR has [B·Q, N], B times as many numbers, and one call of scipy for each image.

**GIoU** [1] of two boxes, with the area I of their intersection, U of their union, and H of the smallest box around both:

    GIoU = I/U − (H − U)/H.

Where U or H is 0, of boxes without an area, its part is 0.

What cannot be told without a look at the numbers (an unknown label, a box of negative width) makes a cost nan: it is
found on the CPU, where the numbers are needed anyway, and nothing waits for it before.

[1] H. Rezatofighi et al.: Generalized intersection over union. CVPR, 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from otformer import checks
from otformer.memory import needs
from otformer.nn import inputs
from otformer.transport.compat.like_scipy import of_matrix
from otformer.transport.ragged.assignments import Packed, assign_packed, pairs
from otformer.transport.solve import eager

ALPHA, GAMMA, TINY = 0.25, 2.0, 1e-8  # of the focal cost; what is added within its logarithms
HELD = 12  # matrices as large as the costs, at once
Outputs = Mapping[str, Tensor]
Targets = Sequence[Mapping[str, Tensor]]


class Matcher(nn.Module):
    """DETR's matching of queries to objects: for each image, the pairs whose costs have the least sum.

    class_cost, box_cost, giou_cost : the weights of the class, of the L1 distance of boxes, and of −GIoU; 0 leaves one out.
    class_cost_type : "softmax" as in DETR, or "focal" as in Deformable DETR and its successors.

    Costs are computed in float32, or in float64 for float64 input. For other costs override `cost`.

    >>> logits = torch.tensor([[[5.0, 0.0], [0.0, 5.0], [0.0, 0.0]]])
    >>> outputs = {"pred_logits": logits, "pred_boxes": torch.full((1, 3, 4), 0.5)}
    >>> targets = [{"labels": torch.tensor([1, 0]), "boxes": torch.full((2, 4), 0.4)}]
    >>> Matcher()(outputs, targets)
    [(tensor([0, 1]), tensor([1, 0]))]
    """

    def __init__(
        self, class_cost: float = 1.0, box_cost: float = 5.0, giou_cost: float = 2.0, class_cost_type: str = "softmax"
    ) -> None:
        super().__init__()
        self.class_cost = checks.not_negative("class_cost", class_cost)
        self.box_cost = checks.not_negative("box_cost", box_cost)
        self.giou_cost = checks.not_negative("giou_cost", giou_cost)
        if not self.class_cost + self.box_cost + self.giou_cost:
            raise checks.ArgumentError("class_cost, box_cost and giou_cost", "not all be 0")
        self.class_cost_type = checks.choice("class_cost_type", class_cost_type, ("softmax", "focal"))

    @eager
    @torch.no_grad()
    @needs(lambda outputs, targets, **_: inputs.need((), sum(_counts(targets)), outputs["pred_logits"].shape[1], HELD))
    def forward(self, outputs: Outputs, targets: Targets) -> list[tuple[Tensor, Tensor]]:
        """Match the queries of every image.

        outputs : a dict with pred_logits (B, Q, K) and pred_boxes (B, Q, 4), as (cx, cy, w, h).
        targets : B dicts with labels (T_k,) and boxes (T_k, 4); T_k may be 0. Other keys are ignored in both.

        Returns a pair (i, j) for each image, int64 on the CPU, as DETR does: query i[l], sorted, answers for object j[l];
        min(Q, T_k) pairs.
        """
        count, queries = _check(outputs, targets)
        counts = _counts(targets)
        costs = self.cost(outputs, targets) if sum(counts) else torch.empty(0, queries, device="cpu")
        if not isinstance(costs, Tensor) or tuple(costs.shape) != (sum(counts), queries):
            expected = f"give a tensor ({sum(counts)}, {queries}), a row for each object"
            raise checks.ArgumentError("cost(outputs, targets)", expected, inputs.kind(costs))
        numbers = checks.unseen("cost", costs.detach().cpu()).numpy()
        if np.isnan(numbers).any():
            image = np.repeat(np.arange(count), counts)
            _blame(int(image[np.isnan(numbers).any(1)][0]), outputs, targets)
        packed = Packed.from_shapes(np.ascontiguousarray(numbers).reshape(-1), [(size, queries) for size in counts])
        j, i, found = pairs(packed, assign_packed(packed, False, of_matrix, noun="image"))
        order = np.lexsort((i, np.repeat(np.arange(count), found)))
        both = torch.from_numpy(np.stack([i[order], j[order]]))
        return list(zip(*(t.split(found) for t in both), strict=True))

    def cost(self, outputs: Outputs, targets: Targets) -> Tensor:
        """Costs [N, Q] of all objects, image by image, with the queries of their image; +inf forbids a pair.

        Override it for other costs; ``super().cost(outputs, targets)`` gives these.
        """
        logits, boxes = (_float(outputs[name]) for name in ("pred_logits", "pred_boxes"))
        labels, own = (torch.cat([target[name] for target in targets]) for name in ("labels", "boxes"))
        counts = torch.tensor(_counts(targets), device="cpu")
        image = torch.arange(len(targets), device="cpu").repeat_interleave(counts).to(logits.device)
        total = logits.new_zeros(len(image), logits.shape[1])
        if self.class_cost:
            total += self.class_cost * self._class_costs(logits, labels.long(), image)
        if self.box_cost or self.giou_cost:
            predicted = boxes.permute(2, 0, 1).contiguous()[:, image]  # [4, N, Q]: each coordinate in one piece
            wanted = _float(own).T[:, :, None]  # [4, N, 1]
            if self.box_cost:
                total += self.box_cost * sum((b - t).abs() for b, t in zip(predicted, wanted, strict=True))
            if self.giou_cost:
                total -= self.giou_cost * _generalized_iou(predicted, wanted)
        return total

    def _class_costs(self, logits: Tensor, labels: Tensor, image: Tensor) -> Tensor:
        """[N, Q], of logits [B, Q, K]; nan for an unknown label."""
        classes = logits.shape[2]
        known = (labels >= 0) & (labels < classes)
        at = image, slice(None), labels.clamp(0, classes - 1)
        if self.class_cost_type == "softmax":
            costs = -logits.softmax(-1)[at]
        else:
            p = logits[at].sigmoid()
            costs = (1 - ALPHA) * p**GAMMA * (1 - p + TINY).log() - ALPHA * (1 - p) ** GAMMA * (p + TINY).log()
        return torch.where(known[:, None], costs, torch.nan)

    def extra_repr(self) -> str:
        weights = f"class_cost={self.class_cost:g}, box_cost={self.box_cost:g}, giou_cost={self.giou_cost:g}"
        return f"{weights}, class_cost_type={self.class_cost_type!r}"


def _float(t: Tensor) -> Tensor:
    return t.float() if t.dtype in checks.LOW else t


def _counts(targets: Targets) -> list[int]:
    return [len(target["labels"]) for target in targets]


def _generalized_iou(a: Tensor, b: Tensor) -> Tensor:
    """GIoU of boxes (cx, cy, w, h), [4, …] each; nan where a width or a height is negative.

    >>> whole, part, beside = torch.tensor([[2.0, 2.0, 4.0, 4.0], [1.0, 1.0, 2.0, 2.0], [6.0, 2.0, 4.0, 4.0]])
    >>> [float(_generalized_iou(whole, box)) for box in (whole, part, beside, torch.zeros(4))]
    [1.0, 0.25, 0.0, 0.0]
    """
    (a_low, a_high), (b_low, b_high) = _corners(a), _corners(b)  # [2, …]
    areas = (a_high - a_low).prod(0) + (b_high - b_low).prod(0)
    intersection = (torch.minimum(a_high, b_high) - torch.maximum(a_low, b_low)).clamp_min(0).prod(0)
    hull = (torch.maximum(a_high, b_high) - torch.minimum(a_low, b_low)).prod(0)
    union = areas - intersection
    return intersection / torch.where(union > 0, union, 1) - (hull - union) / torch.where(hull > 0, hull, 1)


def _corners(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """The lower and the upper corners [2, …] of boxes [4, …]."""
    half = torch.where(boxes[2:] >= 0, boxes[2:], torch.nan) / 2
    return boxes[:2] - half, boxes[:2] + half


def _check(outputs: Outputs, targets: Targets) -> tuple[int, int]:
    """Check keys, shapes, dtypes and devices; return the numbers of images and of queries."""
    for name in ("pred_logits", "pred_boxes"):
        if not isinstance(outputs, Mapping) or name not in outputs:
            raise checks.ArgumentError("outputs", "be a dict with pred_logits and pred_boxes", f"no {name}")
        t = outputs[name]
        if not isinstance(t, Tensor) or not t.is_floating_point() or t.ndim != 3:
            last = "K" if name == "pred_logits" else "4"
            raise checks.ArgumentError(name, f"be a tensor of floats (B, Q, {last})", inputs.kind(t))
        checks.no_transforms(name, t)
    logits, boxes = outputs["pred_logits"], outputs["pred_boxes"]
    count, queries, classes = logits.shape
    if tuple(boxes.shape) != (count, queries, 4) or not classes:
        raise checks.ArgumentError("pred_boxes", f"have shape {(count, queries, 4)}, as pred_logits", tuple(boxes.shape))
    if not isinstance(targets, Sequence) or len(targets) != count:
        came = len(targets) if isinstance(targets, Sequence) else inputs.kind(targets)
        raise checks.ArgumentError("targets", f"be {count} dicts, one for each image", came)
    for k, target in enumerate(targets):
        _check_target(k, target, logits.device)
    return count, queries


def _check_target(k: int, target: Any, device: torch.device) -> None:
    labels, boxes = (target.get(name) if isinstance(target, Mapping) else None for name in ("labels", "boxes"))
    if not isinstance(labels, Tensor) or labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
        raise checks.ArgumentError(f"labels of image {k}", "be a tensor of whole numbers (T,)", inputs.kind(labels))
    if not isinstance(boxes, Tensor) or not boxes.is_floating_point() or tuple(boxes.shape) != (len(labels), 4):
        raise checks.ArgumentError(f"boxes of image {k}", f"be a tensor of floats ({len(labels)}, 4)", inputs.kind(boxes))
    for name, t in (("labels", labels), ("boxes", boxes)):
        if t.device != device:
            raise checks.ArgumentError(f"{name} of image {k}", f"be on {device}", t.device)


def _blame(k: int, outputs: Outputs, targets: Targets) -> None:
    """Raise for image k, one of whose costs is nan: name what is not as it should be."""
    classes, labels = outputs["pred_logits"].shape[2], targets[k]["labels"]
    strange = labels[(labels < 0) | (labels >= classes)]
    if len(strange):
        raise checks.ArgumentError(f"labels of image {k}", f"be from 0 to {classes - 1}", int(strange[0]))
    for name, t in (
        ("boxes", targets[k]["boxes"]), ("pred_boxes", outputs["pred_boxes"][k]), ("pred_logits", outputs["pred_logits"][k])
    ):  # fmt: skip
        if not bool(t.isfinite().all()):
            raise checks.ArgumentError(f"{name} of image {k}", "be finite", checks.first_not_finite(t))
        if name != "pred_logits" and bool((t[:, 2:] < 0).any()):
            expected = "have widths and heights of 0 or more, as (cx, cy, w, h)"
            raise checks.ArgumentError(f"{name} of image {k}", expected, float(t[:, 2:].min()))
    raise checks.ArgumentError(f"cost of image {k}", "not be nan")
