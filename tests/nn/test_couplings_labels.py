"""Couplings of points with labels, against POT on every label."""

from __future__ import annotations

import numpy as np
import ot
import pytest
import torch

from helpers.point_clouds import normal, squares_of
from otformer.nn.couplings import OTPlanSampler


@pytest.mark.parametrize(("n", "m"), [(60, 60), (40, 70), (70, 40)])
def test_labels_couple_each_class_as_pot_does(n, m):
    x, y = normal(n, 3, 1), normal(m, 3, 2)
    g = torch.Generator().manual_seed(0)
    y0, y1 = torch.randint(4, (n,), generator=g), torch.randint(4, (m,), generator=g)
    table = OTPlanSampler().table(x, y, y0, y1)
    assert torch.equal(y0[table.i], y1[table.j])
    at, size = (table.i, n) if n > m else (table.j, m)
    np.testing.assert_allclose(np.bincount(at, table.masses, size), 1 / size, rtol=1e-12)
    C = squares_of(x, y)
    for label in range(4):
        rows, columns, mine = y0 == label, y1 == label, y0[table.i] == label
        best = ot.emd2([], [], C[rows][:, columns].copy())
        masses = table.masses[mine] / table.masses[mine].sum()
        assert float(masses @ C[table.i[mine], table.j[mine]]) == pytest.approx(best, rel=1e-9)
    for method in ("exact", "sinkhorn"):
        sampler = OTPlanSampler(method, reg=1.0, match_labels=True, generator=0)
        plan = sampler.get_map(x, y, y0, y1)
        assert not plan[y0[:, None] != y1].any()
        np.testing.assert_allclose(plan.sum(1 if n > m else 0), 1 / size, atol=1e-6)
        _, _, drawn0, drawn1 = sampler.sample_plan_with_labels(x, y, y0, y1)
        assert torch.equal(drawn0, drawn1)
        assert len(drawn0) == n


def test_labels_of_equal_counts_give_a_permutation_and_others_are_carried_along():
    x, y, label = normal(30, 5, 1), normal(30, 5, 2), torch.arange(30) % 3
    i, j = OTPlanSampler().pairs(x, y, label, label.flip(0))
    assert (i.tolist(), sorted(j.tolist())) == (list(range(30)), list(range(30)))
    names = torch.arange(30)
    x0, x1, y0, y1 = OTPlanSampler(generator=0).sample_plan_with_labels(x, y, names, names)  # as torchcfm: no restriction
    assert torch.equal(x0, x[y0])
    assert torch.equal(x1, y[y1])


def test_labels_that_one_side_lacks_are_left_out_and_it_is_said():
    x, y = normal(5, 2, 1), normal(5, 2, 2)
    y0, y1 = torch.tensor([0, 0, 1, 7, 1]), torch.tensor([1, 0, 1, 2, 2])
    with pytest.warns(RuntimeWarning, match=r"1 points of x0 and 2 of x1 are left out"):
        table = OTPlanSampler().table(x, y, y0, y1)
    np.testing.assert_allclose(np.bincount(table.j, table.masses, 5), [1 / 3, 1 / 3, 1 / 3, 0, 0])
    assert float(table.masses.sum()) == pytest.approx(1)
    OTPlanSampler(warn=False).table(x, y, y0, y1)
    with pytest.raises(ValueError, match="y0 and y1 must have a label in common"):
        OTPlanSampler().table(x, y, torch.zeros(5, dtype=torch.int64), torch.ones(5, dtype=torch.int64))
