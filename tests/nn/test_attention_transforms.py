"""`SinkhornAttention` inside torch.func: what is differentiated in reverse is as by autograd, what is not is one line."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

from otformer.nn import SinkhornAttention

WAYS = [{}, {"unbalanced": 0.7}, {"executor": "stream"}, {"executor": "stream", "unbalanced": 0.7}]
X = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def layer(**options) -> SinkhornAttention:
    torch.manual_seed(0)
    return SinkhornAttention(8, 2, batch_first=True, dtype=torch.float64, tol=1e-12, **options)


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_grad_and_jacrev_are_autograd(options):
    module = layer(**options)
    weights = {name: p.detach() for name, p in module.named_parameters()}

    def call(x, weights=weights):
        return functional_call(module, weights, (x, x, x), {"need_weights": False})[0]

    of_x = torch.autograd.functional.jacobian(call, X)
    torch.testing.assert_close(jacrev(call)(X), of_x, atol=1e-10, rtol=0)
    found = grad(lambda weights: call(X, weights).square().sum())(weights)
    module(X, X, X, need_weights=False)[0].square().sum().backward()
    torch.testing.assert_close(found, {name: p.grad for name, p in module.named_parameters()}, atol=1e-10, rtol=0)


@pytest.mark.parametrize("options", WAYS)
def test_the_rest_is_refused(options):
    module = layer(**options)

    def call(x):
        return module(x, x, x, need_weights=False)[0].square().sum()

    of_vmap = vmap(call), vmap(grad(call)), grad(lambda x: vmap(call)(x).sum()), jacfwd(call), hessian(call)
    for run in of_vmap:  # the last two go forward, many directions at once
        with pytest.raises(ValueError, match=r"SinkhornAttention does not run inside vmap of torch\.func") as raised:
            run(X)
        assert "\n" not in str(raised.value)
    with pytest.raises(NotImplementedError, match="jvp"):
        jvp(call, (X,), (X,))
    with pytest.raises(RuntimeError, match="this layer can be differentiated once"):
        grad(lambda x: grad(call)(x).sum())(X)
