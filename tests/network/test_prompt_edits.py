"""The prompt laboratory: an edit changes the register it names, and a trace says what remains of the problem's plan."""

import warnings

import numpy as np
import pytest
import torch

import otformer as of
from oracles import pot_plan, squared_cost, uniform

N, REG = 6, 0.1
SINK = torch.tensor([1.0] * N + [3.0])  # three times the sink's number


def made(depth: int = 600, **options):
    x, y = uniform(0, N, 2), uniform(1, N, 2)
    net = of.AligningTransformer(2, REG, depth, **options)
    return net, net.prompt(x, y), (x, y)


def share(trace, x, y) -> float:
    """What remains of POT's plan, by hand."""
    P = pot_plan(squared_cost(x, y).numpy(), np.ones(N), np.ones(N), REG)
    return 1 - float(np.abs(trace.attention().numpy() - P).sum(1).mean()) / 2


def test_a_network_runs_a_prompt_as_it_runs_the_points():
    net, prompt, (x, y) = made(20)
    assert torch.equal(net(prompt, warn=False).Z(), net(x, y, warn=False).Z())
    batch = net.prompt([x, x[:4]], [y, y[:3]])
    assert torch.equal(net(batch, warn=False).plan(), net([x, x[:4]], [y, y[:3]], warn=False).plan())
    stock = of.StockTransformer(net)
    for one, other in zip(stock(stock.prompt(x, y)).potentials(), stock(x, y).potentials(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("edit", "columns", "by_hand", "said"),
    [
        (lambda p: p.blank("y", "x_sq"), slice(2, 5), lambda t: 0 * t, "y, x_sq blanked"),
        (lambda p: p.scale("y", -2), slice(2, 4), lambda t: -2 * t, "y times -2"),
        (lambda p: p.add("u", 1).copy("u", "v"), slice(10, 12), lambda t: t + 1, "u plus 1"),
        (lambda p: p.copy("y", "x").copy("x", "y"), slice(0, 2), lambda t: t + 0, "y copied to x"),
        (lambda p: p.scale("sign", 3, where="sink"), 9, lambda t: t * SINK, "sign times 3 in the sink"),
        (lambda p: p.blank("one1", where="tokens"), 6, lambda t: 0 * t, "one1 blanked in the tokens"),
    ],
)
def test_an_edit_changes_the_columns_it_names_and_no_other(edit, columns, by_hand, said):
    _, prompt, _ = made(3)
    before, wanted = prompt.Z.clone(), prompt.Z.clone()
    wanted[..., columns] = by_hand(wanted[..., 2:4] if said == "y copied to x" else wanted[..., columns])
    edited = edit(prompt)
    assert torch.equal(edited.Z, wanted)
    assert torch.equal(prompt.Z, before)
    assert edited.original is prompt
    assert edited.edits[0] == said
    assert said in repr(edited)


@pytest.mark.parametrize("name", ["y", "x_sq", "one2", "one3", "sign", "spare"])
def test_what_remains_is_measured_against_the_plan_of_POT(name):
    net, prompt, (x, y) = made(schedule="annealed")
    trace = net(prompt.blank(name))
    assert trace.remains == pytest.approx(share(trace, x, y), abs=1e-5)
    assert trace.converged == (name in {"x_sq", "spare"})  # u takes over what x_sq said
    assert f"{name} blanked" in repr(trace)
    assert "converged" not in repr(trace)


def test_marginals_alone_do_not_make_an_edited_run_converged():
    net, prompt, _ = made(schedule="annealed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the trace says it; a warning would tell the user what he did himself
        trace = net(prompt.blank("y"))  # every y is alike: the plan is uniform, and its marginals are right
    assert trace.marginal_error < 1e-9
    assert not trace.converged
    assert 0 < trace.remains < 0.7
    back = net(prompt.scale("y", 2).scale("y", 0.5))
    assert back.converged
    assert back.remains > 0.999


def test_a_batch_says_what_remains_of_each_problem():
    net, _, (x, y) = made(schedule="annealed")
    batch = net.prompt([x, x[:4]], [y, y[:3]])
    remains = net(batch.blank("y")).remains
    assert remains.shape == (2,)
    for k, (own_x, own_y) in enumerate([(x, y), (x[:4], y[:3])]):
        alone = net(net.prompt(own_x, own_y).blank("y"))
        assert float(remains[k]) == pytest.approx(alone.remains, abs=1e-6)


def test_the_minimal_prompt_is_edited_by_its_own_registers():
    x, y = uniform(0, N, 2), uniform(1, N, 2)
    net = of.MinimalTransformer(2, REG, 600, "annealed")
    prompt = net.prompt(x, y)
    assert net(prompt).converged
    trace = net(prompt.blank("y"))
    assert trace.remains == pytest.approx(share(trace, x, y), abs=1e-5)
    with pytest.raises(ValueError, match="name must be one of x, y, sign, u, v, got 'x_sq'"):
        prompt.blank("x_sq")


def test_pages_and_pictures_of_an_edited_run(tmp_path):
    net, prompt, _ = made(40)
    net(prompt.blank("y")).save(tmp_path / "t.html")
    for ending in ("svg", "pdf", "png"):
        net(prompt.blank("one3")).save(tmp_path / f"t.{ending}")
    with pytest.raises(ValueError, match=r"picture where one3 was edited, got a page: name a \.svg"):
        net(prompt.blank("one3")).save(tmp_path / "no.html")
    assert "prompt edited" in net(prompt.blank("one3"))._repr_html_()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["t.html", "t.pdf", "t.png", "t.svg"]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda p: p.blank("z_sq"), "name must be one of x, y, x_sq, y_sq, .*, got 'z_sq'"),
        (lambda p: p.blank(), "names must name registers to blank, of x, y, x_sq"),
        (lambda p: p.scale("y", "2"), "factor must be an array of numbers, got '2'"),
        (lambda p: p.scale("y", float("nan")), "factor must be finite, got nan$"),
        (lambda p: p.add("y", [1, 2]), "value must be one number"),
        (lambda p: p.copy("x", "u"), "target must be as wide as x: 2 columns, got u with 1"),
        (lambda p: p.copy("x", "z"), "target must be one of x, y"),
        (lambda p: p.blank("x", where="rows"), "where must be one of all, tokens, sink, got 'rows'"),
        (lambda p: p.scale("y", 1e308).scale("y", 1e308), "the edited prompt must hold finite numbers only"),
        (lambda p: made(3)[0](p, [[1.0, 2.0]]), "y, a and b must be left out when x is a prompt"),
        (lambda p: of.AligningTransformer(1, REG, 3)(p), "the prompt must have this network's Registers"),
        (lambda p: made(3)[0](p.scale("x", 1e200).scale("y", 1e200)), "edits of the prompt must be smaller: the numbers"),
    ],
)
def test_bad_edits_are_one_line(edit, said):
    with pytest.raises(ValueError, match=said) as refused:
        edit(made(3)[1])
    assert "\n" not in str(refused.value)
