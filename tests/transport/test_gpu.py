"""On a CUDA device (`make test-gpu`): the same numbers as on the CPU. Imports nothing that is not on a bare GPU machine."""

import pytest
import torch

import otformer as of
from oracles import points

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("schedule", ["gradient", "relaxed", "annealed"])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-10), (torch.float32, 1e-3)])
def test_the_network(schedule, dtype, atol):
    x, y = points(0, (3, 20, 2), (3, 20, 2), dtype=dtype)
    net = of.AligningTransformer(2, 0.05, 400, schedule=schedule)
    cpu = net(x, y, warn=False).plan()
    gpu = net.cuda()(x.cuda(), y.cuda(), warn=False).plan()
    assert gpu.is_cuda
    torch.testing.assert_close(gpu.cpu(), cpu, rtol=0, atol=atol)


def test_a_ragged_batch():
    xs, ys = points(1, (3, 2), (7, 2), (1, 2)), points(2, (5, 2), (7, 2), (4, 2))
    net = of.AligningTransformer(2, 0.1, 200)
    cpu = net(xs, ys).plan()
    gpu = net.cuda()([x.cuda() for x in xs], [y.cuda() for y in ys]).plan()
    torch.testing.assert_close(gpu.cpu(), cpu, rtol=0, atol=1e-11)


@pytest.mark.parametrize("build", [of.StockTransformer, of.StockEncoder])
def test_stock_modules(build):
    x, y = points(3, (8, 2), (8, 2))
    net = of.AligningTransformer(2, 0.1, 300)
    u, v = build(net).cuda()(x.cuda(), y.cuda()).potentials()
    expected = net(x, y).potentials()
    assert u.is_cuda
    torch.testing.assert_close(u.cpu(), expected[0], rtol=0, atol=1e-11)
    torch.testing.assert_close(v.cpu(), expected[1], rtol=0, atol=1e-11)


def test_network_and_points_on_different_devices_are_refused():
    (x,) = points(4, (3, 2))
    with pytest.raises(ValueError, match="x is on cpu, the network on cuda:0: move one of them"):
        of.AligningTransformer(2, 0.1, 5).cuda()(x, x)


def test_solve_batch_and_sort():
    (C,) = points(5, (40, 30))
    here, there = of.solve(C, reg=0.01, tol=1e-9), of.solve(C.cuda(), reg=0.01, tol=1e-9)
    assert there.plan.is_cuda
    assert there.converged
    torch.testing.assert_close(there.plan.cpu(), here.plan, rtol=0, atol=1e-8)
    results = of.solve_batch([C.cuda(), C[:7, :9].cuda()], reg=0.05)
    assert all(r.converged and r.plan.is_cuda for r in results)
    (values,) = points(6, (200,))
    assert torch.equal(of.sort(values.cuda()).cpu(), values.sort().values)


def test_gradients():
    x, y = points(7, (6, 2), (5, 2))
    grads = []
    for device in ("cpu", "cuda"):
        moved = x.detach().clone().to(device).requires_grad_()
        of.solve_sample(moved, y.to(device), reg=0.1, tol=1e-10).value.backward()
        grads.append(moved.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0], rtol=0, atol=1e-7)
