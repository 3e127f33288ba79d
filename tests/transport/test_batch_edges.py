"""of.solve_batch at the edges: few layers, broken problems sent elsewhere, threads."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import otformer as of


def test_few_layers_give_finite_numbers():
    rng = np.random.default_rng(0)
    for n, m, mass, layers in ((2, 2, 10.0, 4), (117, 5, 1e5, 5), (9, 9, 1.0, 2)):
        problem = rng.random((n, m)), np.full(n, mass / n), np.full(m, mass / m)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (r,) = of.solve_batch([problem], reg=1e-4, max_depth=layers)
        assert np.isfinite(r.plan).all()
        assert np.isfinite([r.value, r.value_linear, r.marginal_error]).all()


def test_a_broken_problem_survives_a_pickle_and_no_type_of_it_loses_the_others():
    with pytest.raises(of.BrokenProblems, match="problem 1: ") as caught:
        of.solve_batch([np.ones((2, 2)), torch.eye(3).to_sparse(), np.eye(2), torch.eye(3, device="meta")])
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert [r is None for r in again.results] == [False, True, False, True]


def test_threads_leave_no_filter_behind():
    before = list(warnings.filters)
    problems = [np.random.default_rng(k).random((6, 6)) for k in range(40)]

    def run(_):
        return [r.converged for r in of.solve_batch(problems, reg=1e-3, tol=0.0, max_depth=50)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ThreadPoolExecutor(3) as pool:
            assert not any(any(done) for done in pool.map(run, range(6)))
    assert warnings.filters == before
    with pytest.warns(RuntimeWarning, match="not converged: 40 of 40"):
        of.solve_batch(problems, reg=1e-3, tol=0.0, max_depth=50)
