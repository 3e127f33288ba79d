"""A small detector in the manner of DETR: queries that answer for objects, which of them found by `of.nn.Matcher`.

    python docs/gallery/training/detector.py

Pictures of 32 × 32 with one to four objects: squares, discs and crosses of any colour on noise. A few convolutions, a
transformer decoder with eight queries, a class and a box from each query. The loss needs to know which query answers for
which object: the matching of least cost in every step, or, for comparison, query k for the k-th object in the order in which
they were drawn. *Found*: share of the objects of new pictures with a query of the right class, more than half sure, and a
box that overlaps theirs by half or more; each query counts for one object. *False*: share of the sure queries that count
for none.
"""

from __future__ import annotations

import time

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional

import otformer as of

CLASSES, QUERIES, SIDE, BATCH, STEPS = ("square", "disc", "cross"), 8, 32, 32, 1200
NONE = len(CLASSES)  # the class of a query that answers for nothing
Target = dict[str, Tensor]


def picture(g: torch.Generator) -> tuple[Tensor, Target]:
    """A picture [3, 32, 32] and its objects: labels [k], boxes [k, 4] as (cx, cy, w, h) in units of the side."""
    image = 0.1 * torch.randn(3, SIDE, SIDE, generator=g)
    y, x = torch.meshgrid(torch.arange(SIDE) + 0.5, torch.arange(SIDE) + 0.5, indexing="ij")
    labels, boxes = [], []
    for _ in range(int(torch.randint(1, 5, (1,), generator=g))):
        half, label = 3 + 3 * float(torch.rand(1, generator=g)), int(torch.randint(3, (1,), generator=g))
        cx, cy = (half + (SIDE - 2 * half) * torch.rand(2, generator=g)).tolist()
        dx, dy = (x - cx).abs(), (y - cy).abs()
        inside = (dx <= half) & (dy <= half)
        inside &= (dx**2 + dy**2 <= half**2) if label == 1 else (dx <= half / 3) | (dy <= half / 3) if label == 2 else True
        colour = 0.4 + 0.6 * torch.rand(3, 1, 1, generator=g)
        image = torch.where(inside, colour, image)
        labels.append(label)
        boxes.append([cx / SIDE, cy / SIDE, 2 * half / SIDE, 2 * half / SIDE])
    return image, {"labels": torch.tensor(labels), "boxes": torch.tensor(boxes)}


def pictures(count: int, g: torch.Generator) -> tuple[Tensor, list[Target]]:
    images, targets = zip(*(picture(g) for _ in range(count)), strict=True)
    return torch.stack(images), list(targets)


class Detector(nn.Module):
    def __init__(self, d: int = 64) -> None:
        super().__init__()
        steps = [(3, 16, 2), (16, 32, 1), (32, d, 2)]
        layers = [layer for i, o, s in steps for layer in (nn.Conv2d(i, o, 3, s, 1), nn.GroupNorm(8, o), nn.ReLU())]
        self.backbone = nn.Sequential(*layers)
        self.places = nn.Parameter(0.1 * torch.randn(SIDE * SIDE // 16, d))
        self.queries = nn.Parameter(torch.randn(QUERIES, d))
        decoder = nn.TransformerDecoderLayer(d, 4, 2 * d, 0.0, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoder(decoder, 2)
        self.label, self.box = nn.Linear(d, NONE + 1), nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 4))

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        tokens = self.backbone(images).flatten(2).mT + self.places
        found = self.decoder(self.queries.expand(len(images), -1, -1), tokens)
        return {"pred_logits": self.label(found), "pred_boxes": self.box(found).sigmoid()}


def overlap(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """IoU and GIoU of boxes p and q [..., 4]."""
    p_low, p_high, q_low, q_high = (b[..., :2] + s * b[..., 2:] / 2 for b in (p, q) for s in (-1, 1))
    common = (torch.minimum(p_high, q_high) - torch.maximum(p_low, q_low)).clamp_min(0).prod(-1)
    union = p[..., 2:].prod(-1) + q[..., 2:].prod(-1) - common
    hull = (torch.maximum(p_high, q_high) - torch.minimum(p_low, q_low)).prod(-1)
    return common / union, common / union - (hull - union) / hull


def in_order(outputs: dict[str, Tensor], targets: list[Target]) -> list[tuple[Tensor, Tensor]]:
    """Query k answers for object k."""
    return [(torch.arange(len(t["labels"])),) * 2 for t in targets]


def loss(outputs: dict[str, Tensor], targets: list[Target], pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    classes = torch.full(outputs["pred_logits"].shape[:2], NONE)
    for k, (queries, objects) in enumerate(pairs):
        classes[k, queries] = targets[k]["labels"][objects]
    own = torch.cat([outputs["pred_boxes"][k, queries] for k, (queries, _) in enumerate(pairs)])
    boxes = torch.cat([targets[k]["boxes"][objects] for k, (_, objects) in enumerate(pairs)])
    weight = torch.tensor([1.0] * NONE + [0.3])
    label = functional.cross_entropy(outputs["pred_logits"].flatten(0, 1), classes.flatten(), weight)
    return label + (5 * (own - boxes).abs().sum(1) + 2 * (1 - overlap(own, boxes)[1])).mean()


def train(match, steps: int, data: tuple[Tensor, list[Target]]) -> Detector:
    torch.manual_seed(0)
    net, g = Detector(), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, steps)
    for _ in range(steps):
        chosen = torch.randint(len(data[0]), (BATCH,), generator=g)
        outputs, targets = net(data[0][chosen]), [data[1][k] for k in chosen.tolist()]
        optimizer.zero_grad()
        loss(outputs, targets, match(outputs, targets)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return net.eval()


@torch.no_grad()
def judge(net: Detector, data: tuple[Tensor, list[Target]]) -> tuple[float, float, dict[str, Tensor]]:
    """The shares found and false, and the outputs."""
    outputs, right, sure, objects = net(data[0]), 0, 0, 0
    share, label = outputs["pred_logits"].softmax(2)[..., :NONE].max(2)
    for k, target in enumerate(data[1]):
        kept = (share[k] > 0.5).nonzero()[:, 0]
        iou = overlap(outputs["pred_boxes"][k, kept, None], target["boxes"][None])[0]
        good = (iou >= 0.5) & (label[k, kept, None] == target["labels"])
        rows, columns = of.linear_sum_assignment(-good.double()) if good.numel() else ((), ())
        right += sum(bool(good[i, j]) for i, j in zip(rows, columns, strict=True))
        sure, objects = sure + len(kept), objects + len(target["labels"])
    return right / objects, 1 - right / max(sure, 1), outputs


def run(steps: int = STEPS, known: int = 4000, new: int = 300) -> dict[str, tuple[float, float]]:
    """Train and judge, draw the picture, return the shares found and false by the way of matching."""
    data, test = pictures(known, torch.Generator().manual_seed(0)), pictures(new, torch.Generator().manual_seed(3))
    ways, found, shown = {"Matcher": of.nn.Matcher(), "in order": in_order}, {}, {}
    print(f"{'matching':10}{'found':>8}{'false':>8}{'seconds':>9}")
    for name, match in ways.items():
        began = time.perf_counter()
        net = train(match, steps, data)
        seconds = time.perf_counter() - began
        *numbers, shown[name] = judge(net, test)
        found[name] = tuple(numbers)
        print(f"{name:10}{numbers[0]:8.1%}{numbers[1]:8.1%}{seconds:9.0f}", flush=True)
    figure, axes = plt.subplots(2, 6, figsize=(9, 3.3), layout="constrained")
    for row, (name, outputs) in zip(axes, shown.items(), strict=True):
        share, label = outputs["pred_logits"].softmax(2)[..., :NONE].max(2)
        for k, axis in enumerate(row):
            axis.imshow(test[0][k].permute(1, 2, 0).clamp(0, 1))
            for q in (share[k] > 0.5).nonzero()[:, 0].tolist():
                cx, cy, w, h = (SIDE * outputs["pred_boxes"][k, q]).tolist()
                colour = f"C{int(label[k, q])}"
                axis.add_patch(
                    plt.Rectangle((cx - w / 2 - 0.5, cy - h / 2 - 0.5), w, h, fill=False, color=colour, linewidth=2)
                )
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(f"{name}: {found[name][0]:.0%}")
    figure.savefig("detector.png", dpi=70)
    return found


if __name__ == "__main__":
    found = run()
    assert found["Matcher"][0] > found["in order"][0] + 0.1
