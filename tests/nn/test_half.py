"""float16 holds numbers up to 65,504: a gradient beyond is inf, not NaN, and GradScaler skips such steps and recovers."""

import pytest
import torch

from oracles import uniform
from otformer.nn import DoublyStochastic, SinkhornAttention, SoftRank

HALF, LARGEST = torch.float16, 65504.0
TWO = {
    "exact": lambda **options: DoublyStochastic(**options),
    "iterated": lambda **options: DoublyStochastic(iterations=20, **options),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.01])
@pytest.mark.parametrize("n", [4, 40])
@pytest.mark.parametrize("kind", TWO)
def test_gradients_beyond_float16_are_inf_and_the_others_right(kind, n, temperature, masked):
    mask = None if not masked else (uniform(2, 6, n, n) > 0.3) | torch.eye(n, dtype=torch.bool)
    logits, G = (0.1 * uniform(0, 6, n, n)).to(HALF), (6e4 * (2 * uniform(1, 6, n, n) - 1)).to(HALF)
    found = []
    for dtype in (torch.float64, HALF):
        layer, x = TWO[kind](temperature=temperature, learnable=True).to(dtype), logits.to(dtype).requires_grad_()
        layer(x, mask=mask).backward(G.to(dtype))
        found.append((x.grad.double(), layer.log_temperature.grad.double()))
    for true, half in zip(*found, strict=True):
        over, under = true.abs() > 1.05 * LARGEST, true.abs() < 0.95 * LARGEST
        assert not half.isnan().any()
        assert (half[over] == true[over].sign() * torch.inf).all()
        assert float((half - true)[under].norm()) <= 0.02 * float(true[under].norm())
    assert temperature == 1 or kind == "iterated" or bool(found[0][0].abs().max() > LARGEST)  # the case is there


@pytest.mark.parametrize("n", [4, 40])
def test_an_infinite_gradient_is_handed_on_where_there_is_mass(n):
    """What a scaler must see; where the plan is 0, a gradient that overflowed has nothing to move."""
    x = torch.zeros(2, n, n, dtype=HALF).masked_fill(torch.eye(n, dtype=torch.bool).roll(1, 0), -torch.inf)
    for entry, seen in (((0, 0, 0), True), ((0, 1, 0), False)):  # (0, 1, 0) is forbidden
        G, logits = torch.ones(2, n, n, dtype=HALF), x.clone().requires_grad_()
        G[entry] = torch.inf
        DoublyStochastic()(logits).backward(G)
        assert bool(logits.grad[0].isfinite().all()) is not seen
        assert logits.grad[1].isfinite().all()


class Mixer(torch.nn.Module):
    """x (batch, 6, 8) with 6 tokens mixed by a matrix that depends on them."""

    def __init__(self, mix):
        super().__init__()
        self.linear, self.mix = torch.nn.Linear(8, 6), mix

    def forward(self, x):
        return self.mix(self.linear(x)) @ x


class Attended(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = SinkhornAttention(8, 2, batch_first=True, tol=1e-5, **options)

    def forward(self, x):
        return self.attention(x, x, x, key_padding_mask=PADDING)[0]


PADDING = torch.zeros(4, 6, dtype=torch.bool)
PADDING[1, 4:] = True
MODELS = {
    "exact": lambda: Mixer(DoublyStochastic(temperature=0.3, learnable=True)),
    "iterated": lambda: Mixer(DoublyStochastic(temperature=0.3, learnable=True, iterations=20)),
    "rank": lambda: Mixer(SoftRank(0.1)),
    "attention": lambda: Attended(temperature=0.3),
    "unbalanced": lambda: Attended(unbalanced=1.0),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_scaler_skips_steps_that_overflow_then_learns(name):
    torch.manual_seed(0)
    model, x = MODELS[name](), uniform(3, 4, 6, 8).float()
    goal = x.flip(1)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.01), torch.amp.GradScaler("cpu", init_scale=2.0**40)
    skipped, losses = 0, []
    for _ in range(60):
        before, scale = [p.detach().clone() for p in model.parameters()], scaler.get_scale()
        optimizer.zero_grad()
        with torch.autocast("cpu", HALF):
            loss = (model(x).float() - goal).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        same = all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
        assert same is (scaler.get_scale() < scale)  # a step is skipped when the scale falls, and only then
        skipped += same
        losses.append(float(loss.detach()))
        assert all(p.isfinite().all() for p in model.parameters())
    assert 5 < skipped < 50
    assert losses[-1] < losses[0]
