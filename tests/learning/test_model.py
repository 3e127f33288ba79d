"""The trainable transformer against loops written out, against the construction, and against itself in pieces."""

import math

import numpy as np
import pytest
import torch

import otformer as of
from otformer.lab.training.data import Problems, generator
from otformer.lab.training.evaluate import evaluate
from otformer.lab.training.initialisation import ConstructionStart, GaussianStart
from otformer.learning.model import Architecture, LearningTransformer

WARM = Architecture(depth=6, tied=True, temperature=True)


def random_net(architecture: Architecture, ensemble: int = 1) -> LearningTransformer:
    net = LearningTransformer(architecture, ensemble).double()
    GaussianStart().fill(net, seed=3)
    return net


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max())
    return e / e.sum()


def appendix_a(net: LearningTransformer, x: np.ndarray, y: np.ndarray, loops: int) -> tuple[np.ndarray, np.ndarray]:
    """Appendix A, token by token, for d = 1 and one model: output attention and returned list."""
    P, V = net.P[0].detach().numpy(), net.V[0].detach().numpy()
    if net.architecture.prompt == "engineered":
        Z = [[a, b, a * a, b * b, 1, 1, 1, 1, 0, 0, 0] for a, b in zip(x, y, strict=True)]
        Z = np.array([*Z, [0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0]])
    else:
        Z = np.array([[a, b, 0] for a, b in zip(x, y, strict=True)])
    for layer in range(loops):
        k = layer % len(P)
        update = np.zeros_like(Z)
        for i in range(len(Z)):
            for h in range(2):
                A = softmax(np.array([Z[i] @ P[k, h] @ Z[j] for j in range(len(Z))]))
                update[i, -V.shape[-1] :] += sum(A[j] * Z[j] for j in range(len(Z))) @ V[k, h] / 20
        Z = Z + update
    Z = Z[: len(x)]
    P_out, V_out = net.P_out[0].detach().numpy(), net.V_out[0].detach().numpy()
    A = np.array([softmax(np.array([Z[i] @ P_out @ Z[j] for j in range(len(x))])) for i in range(len(x))])
    return A, A @ Z @ V_out


@pytest.mark.parametrize(
    "architecture",
    [
        Architecture(depth=3),
        Architecture(depth=3, prompt="plain"),
        Architecture(depth=4, tied=True, written="memory"),
        Architecture(depth=2, prompt="plain", written="memory"),
        Architecture(depth=0),
    ],
)
def test_is_appendix_a(architecture: Architecture) -> None:
    net = random_net(architecture)
    x, y = np.array([0.7, 0.1, 0.4]), np.array([0.2, 0.5, 0.9])
    output = net(torch.tensor(x).view(1, 3, 1), torch.tensor(y).view(1, 3, 1))
    attention, points = appendix_a(net, x, y, architecture.depth)
    np.testing.assert_allclose(output.attention[0, 0].detach(), attention, atol=1e-13)
    np.testing.assert_allclose(output.points[0, 0].detach(), points, atol=1e-13)


def test_gaussian_start_has_the_papers_variance_and_size() -> None:
    net = LearningTransformer(Architecture(), ensemble=8)
    GaussianStart().fill(net, seed=0)
    assert net.P.shape == (8, 20, 2, 11, 11)
    assert net.P.var().item() == pytest.approx(1 / 11, rel=0.02)
    assert net.V.var().item() == pytest.approx(1 / 11, rel=0.02)
    alone = LearningTransformer(Architecture(), ensemble=1)
    GaussianStart().fill(alone, seed=5)
    assert torch.equal(alone.P[0], net.P[5])


@pytest.mark.parametrize("sink", ["frozen", "token"])
def test_started_from_the_construction_it_is_the_aligning_transformer(sink: str) -> None:
    draw = generator(0)
    x, y = (torch.rand(2, 6, 1, generator=draw, dtype=torch.float64) for _ in range(2))
    net = LearningTransformer(Architecture(sink=sink)).double()
    ConstructionStart(reg=0.1, step=0.8).fill(net, seed=0)
    frozen = of.AligningTransformer(1, 0.1, 20, of.Gradient(0.08), sink=sink, marginals=False)
    trace = frozen(x, y, warn=False)
    net.requires_grad_(False)
    states = net.states(x, y)
    for layer in (1, 7, 20):
        for mine, theirs in zip(
            states[layer][0, :, :-1, net.architecture.registers.span("u", "v")].unbind(-1),
            trace.potentials(layer),
            strict=True,
        ):
            assert float((mine - theirs).abs().max()) < 1e-12
    attention = net.output(states[20]).attention[0]
    assert float((attention - trace.attention(20, head="columns")).abs().max()) < 1e-12


@pytest.mark.parametrize("temperature", [False, True])
def test_padding_changes_nothing(temperature: bool) -> None:
    net = random_net(Architecture(depth=3, temperature=temperature), ensemble=2)
    if temperature:
        torch.nn.init.constant_(net.tau, 0.3)
        torch.nn.init.constant_(net.step, 0.1)
        torch.nn.init.constant_(net.tau_out, -0.2)
    x, y = torch.rand(2, 4, 5, 1, generator=generator(1)).double()
    net.requires_grad_(False)
    alone = net(x[:, :3], y[:, :3])
    padded = net(x, y, torch.arange(5).expand(4, 5) < 3)
    assert float((padded.attention[..., :3, :3] - alone.attention).abs().max()) < 1e-14
    assert float(padded.attention[..., 3:].abs().max()) == 0
    assert float((padded.points[..., :3, :] - alone.points).abs().max()) < 1e-14


def test_temperature_scales_weights_along_the_layers() -> None:
    plain, warm = random_net(Architecture(depth=6, tied=True)), LearningTransformer(WARM).double()
    warm.load_state_dict(plain.state_dict(), strict=False)
    for net in (plain, warm):
        net.requires_grad_(False)
    x = torch.rand(1, 5, 1, generator=generator(2)).double()
    torch.testing.assert_close(warm(x, x).logits, plain(x, x).logits)  # all 0: no change
    state = plain.states(x, x)[-1]
    warm.tau_out.fill_(math.log(7))
    torch.testing.assert_close(warm.output(state).logits, 7 * plain.output(state).logits)
    warm.tau[..., 1, :] = torch.tensor([math.log(3), math.log(2)])  # head 1, layer 3 of 6: 3 √2
    ratio = (warm.logits(state, warm.weights()[3]) / plain.logits(state, plain.weights()[3])).unflatten(2, (6, 2))
    torch.testing.assert_close(ratio[..., 0, :], torch.ones_like(ratio[..., 0, :]))
    torch.testing.assert_close(ratio[..., 1, :], torch.full_like(ratio[..., 1, :], 3 * math.sqrt(2)))
    warm.tau.zero_()
    warm.step[:] = torch.tensor([math.log(3), math.log(2)])
    moved, alone = (net.block(state, net.weights()[3]) - state for net in (warm, plain))
    torch.testing.assert_close(moved, 3 * math.sqrt(2) * alone)


def test_attention_is_of_both_heads() -> None:
    net = random_net(Architecture(depth=2)).requires_grad_(False)
    x = torch.rand(1, 3, 1, generator=generator(6)).double()
    state = net.states(x, x)[1]
    A, Z = net.attention(state, net.weights()[1])[0, 0], state[0, 0].numpy()
    for h in range(2):
        wanted = [softmax(np.array([Z[i] @ net.P[0, 1, h].numpy() @ Z[j] for j in range(4)])) for i in range(4)]
        np.testing.assert_allclose(A[h], np.array(wanted), atol=1e-13)


def test_members_do_not_mix() -> None:
    net = random_net(Architecture(depth=2), ensemble=3)
    x, y = torch.rand(2, 3, 4, 5, 1, generator=generator(4)).double()
    together = net(x, y).attention
    for k in range(3):
        torch.testing.assert_close(net.member(k)(x[k], y[k]).attention[0], together[k])
    together[1].sum().log().backward()
    assert net.P.grad is not None
    assert float(net.P.grad[[0, 2]].abs().max()) == 0


def test_the_output_head_reads_the_state_of_every_layer() -> None:
    """Read after k of 6 loops, the network says what appendix A with k layers says."""
    net = random_net(Architecture(depth=6, tied=True)).requires_grad_(False)
    x, y = np.array([0.7, 0.1, 0.4]), np.array([0.2, 0.5, 0.9])
    states = net.states(torch.tensor(x).view(1, 3, 1), torch.tensor(y).view(1, 3, 1))
    assert len(states) == 7
    for loops, state in enumerate(states):
        np.testing.assert_allclose(net.output(state).attention[0, 0], appendix_a(net, x, y, loops)[0], atol=1e-13)


def test_repr_says_what_the_network_is() -> None:
    assert repr(LearningTransformer(Architecture(), ensemble=3)) == (
        "LearningTransformer(20 layers, dim=1, engineered prompt, 9,812 parameters, ensemble of 3)"
    )


@pytest.mark.slow
def test_evaluation_scores_the_construction_and_a_uniform_attention() -> None:
    zero = LearningTransformer(Architecture(depth=1), ensemble=2)
    (score,) = evaluate(zero, [4], problems=50)
    assert score.distance.tolist() == pytest.approx([math.sqrt(3 / 4)] * 2, rel=1e-6)  # Σ_j (1/4 − P_ij)² = 3/4
    assert score.sorted_error.tolist() == pytest.approx([(1 + 4 + 9 + 16) / 16 / 4] * 2, rel=1e-6)  # the list 0, 0, 0, 0
    flat = LearningTransformer(Architecture(depth=400, tied=True, sink="frozen"))
    ConstructionStart(reg=0.003).fill(flat, seed=0)
    assert float(evaluate(flat, [7], kind="values", problems=50)[0].rows) > 0.95


def test_bad_architectures_are_refused() -> None:
    with pytest.raises(ValueError, match="prompt must be one of engineered, plain, got 'none'"):
        Architecture(prompt="none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prompt must be engineered to start from the construction"):
        ConstructionStart().fill(LearningTransformer(Architecture(prompt="plain")), seed=0)
    with pytest.raises(ValueError, match="member must be a whole number of at most 1, got 2"):
        random_net(Architecture(depth=1), ensemble=2).member(2)
    with pytest.raises(ValueError, match="n must be a whole number of at least 2, got 1"):
        Problems(sizes=(1,))
