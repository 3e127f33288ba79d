"""Graphs on a CUDA device: the losses and gradients are those without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from otformer.lab.translators import graphs
from otformer.lab.translators.corpus import Sentences, write_sides
from otformer.lab.translators.variants import VARIANTS, CrossAttention

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("variant", VARIANTS)
def test_graphs_compute_what_is_computed_without(variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "PLAIN_STEPS", 1)
    rng = np.random.default_rng(0)
    rows = lambda sizes: Sentences.of([rng.integers(2, 6000, size).tolist() for size in sizes])  # noqa: E731
    (tmp_path / "en-fr").mkdir()
    write_sides(tmp_path / "en-fr" / "text.npz", en=rows([6] * 8 + [9] * 8), fr=rows([5, 7] * 8))
    task = CrossAttention("en-fr", tmp_path, "cuda", variant)
    torch.manual_seed(0)
    network = task.build().cuda().train()  # with dropout: the random numbers must be the same too
    parameters = [p for p in network.parameters() if p.requires_grad]
    gradients = [[torch.zeros_like(p) for p in parameters] for _ in range(2)]
    plain = graphs.Plain(task.loss, network, parameters, gradients[0])
    graphed = graphs.Graphed(task.loss, network, parameters, gradients[1])
    for turn, first in enumerate([0, 0, 8, 0, 8, 4]):  # once without a graph, then two shapes, one of them again
        inputs, losses = task.inputs(np.arange(first // 8 * 8, first // 8 * 8 + 8 - first % 8)), []
        for side in (plain, graphed):
            torch.manual_seed(turn)
            losses.append(float(side(*inputs)))
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
        for own, other in zip(*gradients, strict=True):
            assert float((own - other).norm()) <= 1e-3 * float(own.norm()) + 1e-6
    assert len(graphed.graphs) == 3
