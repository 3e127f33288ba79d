"""A coupling as a list of pairs: what is drawn from it, an epoch of it, and files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from helpers.point_clouds import normal
from otformer.nn.coupling import Coupling
from otformer.nn.couplings import OTPlanSampler

FAR = 1e-4  # p-value below which counts are not of the probabilities that they should have; seeds are fixed


def test_a_split_point_has_its_partners_by_mass():
    table = Coupling(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 2]), torch.tensor([2, 1, 1, 2.0]) / 6, (2, 3))
    drawn = [table.once(seed) for seed in range(400)]
    assert all(j.tolist() == [0, 1, 2] for _, j in drawn)
    assert chisquare(np.bincount([int(i[1]) for i, _ in drawn])).pvalue > FAR


def test_without_replacement_pairs_come_one_after_the_other():
    """Of masses p the second pair is k with probability Σ_{l ≠ k} p_l p_k / (1 − p_l)."""
    p = np.array([0.5, 0.3, 0.2])
    table = Coupling(torch.arange(3), torch.arange(3), torch.from_numpy(p), (3, 3))
    g = torch.Generator().manual_seed(1)
    seconds = np.bincount([int(table.draw(2, replace=False, generator=g)[0][1]) for _ in range(5000)])
    expected = [sum(p[other] * p[k] / (1 - p[other]) for other in range(3) if other != k) for k in range(3)]
    assert chisquare(seconds, 5000 * np.array(expected)).pvalue > FAR


def test_a_table_is_saved_whole_and_batches_are_an_epoch(tmp_path):
    table = OTPlanSampler().table(normal(50, 2, 1), normal(70, 2, 2))
    table.save(tmp_path / "pairs.safetensors")
    back = Coupling.load(tmp_path / "pairs.safetensors")
    assert back.shape == (50, 70)
    assert all(torch.equal(getattr(back, name), getattr(table, name)) for name in ("i", "j", "masses"))
    seen = [j for _, j in back.batches(32, generator=1)]
    assert [len(j) for j in seen] == [32, 32, 6]
    assert sorted(torch.cat(seen).tolist()) == list(range(70))
    assert [len(j) for _, j in back.batches(32, generator=1, drop_last=True)] == [32, 32]
    assert [i.tolist() for i, _ in back.batches(9, 5)] == [i.tolist() for i, _ in back.batches(9, 5)]


def test_files_that_hold_no_coupling_are_refused(tmp_path):
    file = tmp_path / "x.safetensors"
    ones = torch.ones(2, dtype=torch.int64)
    for table in (Coupling(ones, ones + 0, torch.ones(2), (1, 2)), Coupling(ones, ones + 0, -torch.ones(2), (2, 2))):
        table.save(file)
        with pytest.raises(ValueError, match="points with positive masses"):
            Coupling.load(file)
    file.write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        Coupling.load(file)
    with pytest.raises(ValueError, match=r"must end in \.safetensors"):
        Coupling.load(tmp_path / "pairs.pt")
    from safetensors.torch import save_file

    save_file({"i": ones}, file)
    with pytest.raises(ValueError, match="must hold a coupling that"):
        Coupling.load(file)
