"""The layers under torch.compile, torch.func, autocast, DistributedDataParallel: each works, or is refused in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap

from oracles import uniform
from otformer.nn import DoublyStochastic, SoftQuantile, SoftRank, SoftSort, SoftTopK, Transport

X = uniform(0, 4, 4, 4) * 3
MASK = torch.ones(4, 4, dtype=torch.bool)
MASK[1, 1] = False
CALLS = {
    "doubly stochastic": lambda x: DoublyStochastic(0.8, tol=1e-10)(x),
    "masked": lambda x: DoublyStochastic(0.8, tol=1e-10)(x, mask=MASK),
    "heads": lambda x: DoublyStochastic([0.8] * 4, tol=1e-10)(torch.stack([x] * 4, -3)),
    "weights": lambda x: DoublyStochastic(tol=1e-10)(x, x[..., 0].softmax(-1), x[..., 1].softmax(-1)),
    "iterations": lambda x: DoublyStochastic(0.8, iterations=5)(x, mask=MASK),
    "sort": lambda x: SoftSort(tol=1e-10)(x),
    "weighted sort": lambda x: SoftSort(tol=1e-10)(x, x.exp(), MASK),
    "carry": lambda x: SoftSort(tol=1e-10).carry(x[..., 0], x),
    "rank": lambda x: SoftRank(tol=1e-10)(x),
    "top": lambda x: SoftTopK(2, tol=1e-10)(x),
    "quantile": lambda x: SoftQuantile([0.2, 0.5], tol=1e-10)(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_vmap_is_a_loop_and_jacrev_the_jacobian_of_autograd(name):
    call = CALLS[name]
    torch.testing.assert_close(vmap(call)(X), torch.stack([call(x) for x in X]), atol=1e-9, rtol=0)
    torch.testing.assert_close(
        vmap(call, in_dims=2)(X), torch.stack([call(X[:, :, k]) for k in range(4)]), atol=1e-9, rtol=0
    )
    expected = torch.autograd.functional.jacobian(call, X[0])
    torch.testing.assert_close(jacrev(call)(X[0]), expected, atol=1e-8, rtol=0)
    each = vmap(grad(lambda x: (call(x) ** 2).sum()))(X)
    for x, own in zip(X, each, strict=True):
        x = x.clone().requires_grad_()
        torch.testing.assert_close(own, torch.autograd.grad((call(x) ** 2).sum(), x)[0], atol=1e-8, rtol=0)


def test_an_ensemble_of_temperatures_by_functional_call():
    layer = DoublyStochastic([1.0, 2.0], learnable=True, tol=1e-10)
    logs = torch.tensor([[0.0, 0.1], [0.5, -0.3], [1.0, 0.2]], dtype=torch.float64)

    def loss(log_temperature):
        return functional_call(layer, {"log_temperature": log_temperature}, (X[:2],)).square().sum()

    gradients = vmap(grad(loss))(logs)
    for log_temperature, own in zip(logs, gradients, strict=True):
        t = log_temperature.clone().requires_grad_()
        torch.testing.assert_close(own, torch.autograd.grad(loss(t), t)[0], atol=1e-9, rtol=0)


def test_gradients_of_shared_weights_under_vmap():
    """One pair of weight vectors for a batch of matrices, the batch by vmap and by an axis."""

    def loss(theta, x):
        return (DoublyStochastic(tol=1e-11)(x, theta.softmax(-1)) ** 2).sum()

    theta = uniform(3, 4)
    torch.testing.assert_close(vmap(grad(loss), (None, 0))(theta, X).sum(0), grad(loss)(theta, X), atol=1e-9, rtol=0)


def test_what_is_not_there_is_refused_in_one_line():
    layer = DoublyStochastic()
    x = X[0].clone().requires_grad_()
    for call in (lambda: jacfwd(layer)(X[0]), lambda: hessian(lambda x: layer(x).sum())(X[0])):
        with pytest.raises(NotImplementedError, match="You must implement the jvp function"):
            call()
    (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="this layer can be differentiated once"):
        torch.autograd.grad(first.sum(), x)
    with pytest.raises(ValueError, match="Transport does not run inside"):
        vmap(lambda x: Transport()(x, x))(X)
    with pytest.raises(ValueError, match=r"logits must be finite, or -inf .* got nan"):
        vmap(layer)(X + torch.nan)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CALLS)
def test_torch_compile_takes_the_layers_into_one_graph(name):
    torch.compiler.reset()  # the function below is the same code for every layer
    call, x = CALLS[name], X[:2].clone().requires_grad_()

    def function(x):
        return (call(torch.sin(x)) * 2).square().sum()

    plain, compiled = function(x), torch.compile(function, backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(compiled, plain)
    torch.testing.assert_close(*(torch.autograd.grad(out, x)[0] for out in (compiled, plain)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_bad_input_is_found_in_compiled_code_too():
    for layer in (DoublyStochastic(), DoublyStochastic(iterations=3)):
        with pytest.raises(ValueError, match=r"logits must be finite, or -inf .* got nan"):
            torch.compile(lambda x, layer=layer: layer(x) + 1, backend="aot_eager", fullgraph=True)(X + torch.nan)


@pytest.mark.parametrize("layer", [DoublyStochastic(), SoftSort(), SoftTopK(2), DoublyStochastic(iterations=20)], ids=repr)
def test_autocast(layer):
    linear, x, probe, found = torch.nn.Linear(4, 4), X.float(), uniform(1, 4, 4, 4).bfloat16(), []
    with torch.autocast("cpu", torch.bfloat16):
        low = linear(x).detach()
        for values in (low, low.float()):
            out = layer(values.requires_grad_())
            assert out.dtype == values.dtype
            (grad,) = torch.autograd.grad((out.float() * probe).sum(), values)
            found.append(grad.float())
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("program", ["distributed_layer.py", "distributed_attention.py"])
def test_two_ranks_learn_what_one_does(program: str, tmp_path: Path):
    """DistributedDataParallel with gloo, each rank half of the batch, against the whole on one."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    worker = Path(__file__).with_name(program)
    ranks = [
        subprocess.Popen([sys.executable, str(worker), str(rank), str(tmp_path / "meet")], env=env, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for process in ranks:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said.decode()
