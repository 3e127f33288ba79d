"""What a trace says of its answer: errors against POT and by hand, warnings, scales, reprs, negative layers."""

import sys
import warnings

import numpy as np
import pytest
import torch

import otformer as of
from oracles import marginal_error, pot_plan, squared_cost, uniform


@pytest.mark.slow
@pytest.mark.parametrize("factor", [10.0, 100.0, 1000.0])
def test_a_network_says_when_its_answer_is_not_one(factor):
    x, y = factor * uniform(0, 2, 20, 2)
    net = of.AligningTransformer(2, 0.1, 600)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        line = sys._getframe().f_lineno + 1
        trace = net(x, y)
    assert [(each.category, each.filename, each.lineno) for each in seen] == [(RuntimeWarning, __file__, line)]
    assert 'with scale="auto"' in str(seen[0].message)
    assert not trace.converged
    P = trace.plan()
    by_hand = marginal_error(P, 1, 1)
    assert trace.marginal_error == pytest.approx(by_hand, rel=1e-12)
    assert by_hand > 0.02  # 1e-3 of the mass 20


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e3, 1e10])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_scale_auto_is_POTs_plan_at_lambda_times_the_largest_cost(factor, offset):
    x, y = uniform(1, 9, 3), uniform(2, 7, 3)
    trace = of.AligningTransformer(3, 0.05, 800, scale="auto")(factor * (x + offset), factor * (y + offset), keep="last")
    C = squared_cost(x, y).numpy()
    a, b = np.ones(9), np.full(7, 9 / 7)
    expected = pot_plan(C, a, b, 0.05 * C.max())
    assert np.abs(trace.plan().numpy() - expected).max() < (1e-8 if offset else 1e-10)  # an offset of 1e4 costs four digits
    assert trace.scale == pytest.approx(factor**2 * C.max(), rel=1e-6)
    u, v = (trace.scale * each for each in trace.potentials())
    P = torch.exp((u[:, None] + v - factor**2 * torch.as_tensor(C)) / (0.05 * trace.scale) - 1)
    assert float((P - trace.plan()).abs().max()) < 1e-6


def test_scale_auto_of_a_batch_is_that_of_each_problem_and_absent_points_do_not_count():
    net = of.AligningTransformer(2, 0.1, 300, scale="auto")
    x, y = [100 * uniform(3, 5, 2), uniform(4, 3, 2)], [100 * uniform(5, 4, 2), uniform(6, 6, 2)]
    together = net(x, y)
    for k in range(2):
        alone = net(x[k], y[k])
        assert together.scale[k] == pytest.approx(alone.scale, rel=1e-12)
        n, m = alone.shape
        assert float((together.plan()[k, :n, :m] - alone.plan()).abs().max()) < 1e-12
    far = torch.cat([x[1], torch.full((1, 2), 1e6, dtype=torch.float64)])
    trace = net(far, y[1], a=[1.0, 1.0, 1.0, 0.0])
    assert float((trace.plan()[:3] - net(x[1], y[1]).plan()).abs().max()) < 1e-8
    assert float(trace.plan()[3].sum()) == 0


def test_scale_auto_of_features_and_of_stock_modules():
    M = 1000 * uniform(7, 6, 6)
    trace = of.AligningTransformer(6, 0.1, 600, "relaxed", scale="auto")(of.cost_matrix(M))
    one = np.ones(6)
    expected = pot_plan(M.numpy(), one, one, 0.1 * float(M.max()))
    assert np.abs(trace.plan().numpy() - expected).max() < 1e-9
    x, y = 50 * uniform(8, 2, 5, 2)
    net = of.AligningTransformer(2, 0.1, 200, scale="auto")
    u = net(x, y).potentials()[0]
    for stock in (of.StockTransformer(net), of.StockEncoder(net)):
        assert float((stock(x, y).potentials()[0] - u).abs().max()) < 1e-12


def test_one_point_on_both_sides_has_scale_1_and_what_is_too_large_is_refused():
    net = of.AligningTransformer(1, 0.1, 100, scale="auto")
    trace = net([[3.0]], [[3.0]])
    assert (trace.scale, trace.converged) == (1.0, True)
    with pytest.raises(ValueError, match="x is too large"):
        net([[1e200]], [[-1e200]])
    with pytest.raises(ValueError, match="scale must be one of auto, None, got 'on'"):
        of.AligningTransformer(1, 0.1, 5, scale="on")


def test_the_warning_has_its_switch_and_tol_its_meaning():
    x, y = uniform(9, 2, 3, 6, 2)
    net = of.AligningTransformer(2, 0.1, 10)
    with pytest.warns(RuntimeWarning, match=r"not converged in problem \d: marginal error .* of mass 6; give more layers"):
        trace = net(x, y)
    assert trace.marginal_error.shape == (3,)
    assert not trace.converged
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net(x, y, warn=False)
        assert net(x, y, tol=1.0).converged
        of.AligningTransformer(2, 0.1, 10, sink="token")(x, y)  # the paper's sink: its plan never has these marginals


def test_errors_and_potentials_of_all_layers():
    x, y = uniform(10, 2, 5, 2)
    trace = of.AligningTransformer(2, 0.1, 40)(x, y, keep=[0, 3, 9], warn=False)
    u, v = trace.all_potentials()
    errors = trace.marginal_errors()
    C = squared_cost(x, y)
    for k, layer in enumerate([0, 3, 9, 40]):
        assert torch.equal(u[k], trace.potentials(layer)[0])
        P = torch.exp((u[k][:, None] + v[k] - C) / 0.1 - 1)
        assert float(errors[k]) == pytest.approx(marginal_error(P, 1, 1), rel=1e-10)
    assert trace.marginal_error == float(errors[-1])


def test_negative_layers_count_from_the_end():
    x, y = uniform(11, 2, 4, 2)
    net = of.AligningTransformer(2, 0.1, 60)
    trace = net(x, y, warn=False)
    for read in (trace.attention, trace.plan, trace.Z):
        assert torch.equal(read(-1), read(60))
        assert torch.equal(read(-61), read(0))
    run = of.StockTransformer(net)(x, y, attention=[-1])
    assert torch.equal(run.attention(-1), run.attention(60))
    assert torch.equal(run.potentials(-2)[1], run.potentials(59)[1])
    for bad in (61, -62, 1.5, True):
        with pytest.raises(ValueError, match=f"layer must be from 0 to 60, or negative to count from the end, got {bad}"):
            trace.plan(bad)


def test_a_trace_is_saved_as_a_page_or_a_picture_of_the_last_layer(tmp_path, capsys):
    trace = of.AligningTransformer(1, 0.1, 40)([[0.1]], [[0.2]])
    for name, begins in (("t.svg", b"<?xml"), ("t.pdf", b"%PDF"), ("t.png", b"\x89PNG"), ("t.html", b"<!doctype html>")):
        trace.save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begins)
    assert b"layer 40" in (tmp_path / "t.svg").read_bytes()
    with pytest.raises(ValueError, match=r"path must end in \.html, \.htm, \.png, \.svg or \.pdf, got '.*t\.gif'"):
        trace.save(tmp_path / "t.gif")
    with pytest.raises(ValueError, match="goal must be left out of a picture"):
        trace.save(tmp_path / "t.svg", goal=np.ones((1, 1)))
    trace.show()
    assert f"Trace  ✓ {trace.verdict()}" in capsys.readouterr().out


def test_reprs_say_what_a_thing_is():
    net = of.AligningTransformer(2, 0.1, 60, of.Relaxed(1.5))
    settings = "dim=2, reg=0.1, depth=60, schedule=Relaxed(omega=1.5), sink=frozen, columns=15"
    assert repr(net) == f"AligningTransformer({settings})"
    assert list(net.registers)[:3] == ["x", "y", "x_sq"]
    assert "spare 12, log_a 13, log_b 14" in repr(net.registers)
    assert "width=16" in repr(of.SinkhornTransformer(2, 0.1, 4, width=16))
    assert repr(of.StockTransformer(net)) == f"StockTransformer({settings}; nn.MultiheadAttention, heads=2, embed_dim=16)"
    assert "nn.TransformerEncoderLayer, heads=2, embed_dim=18" in repr(of.StockEncoder(net))
    x, y = uniform(12, 2, 3, 5, 2)
    assert repr(net(x[0], y[0], keep="last")).startswith("Trace(60 layers (1 kept), 5×5 plan, converged: marginal error ")
    assert repr(net(x, y)).startswith("Trace(60 layers, 3 plans of 5×5, converged: marginal error ")
