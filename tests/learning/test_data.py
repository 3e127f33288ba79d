"""Training problems and objectives, against brute force and numbers by hand."""

import pytest
import torch

from oracles import best_assignment, squared_cost
from otformer.lab.training.data import KINDS, Batch, Problems, generator
from otformer.lab.training.objectives import attention_error, cross_entropy, distance, rows_right, sorted_error
from otformer.learning.model import Output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dim"), [("permutations", 1), ("values", 1), ("subsets", 1), ("value-windows", 1), ("clouds", 1), ("clouds", 3)]
)
def test_targets_are_optimal_assignments(kind: str, dim: int) -> None:
    batch = Problems((kind,), (2, 3, 5), dim).draw(30, generator(7))
    assert {int(n) for n in batch.present.sum(-1)} == {2, 3, 5}
    for x, y, present, target, _ in zip(*batch, strict=True):
        n = int(present.sum())
        assert tuple(target[:n].tolist()) == best_assignment(squared_cost(y[:n], x[:n]))
        assert float(x[n:].abs().sum() + y[n:].abs().sum()) == 0


def test_permutations_are_the_papers() -> None:
    batch = Problems().draw(200, generator(0))
    assert batch.y[0, :, 0].tolist() == pytest.approx([i / 7 for i in range(1, 8)])
    assert float((batch.x.sort(dim=1).values - batch.y).abs().max()) == 0
    first = batch.x[:, 0, 0]  # every value comes first about 200/7 = 29 times; 5 standard deviations are 25
    assert all(4 < int((first == v).sum()) < 54 for v in batch.y[0, :, 0])


def test_subsets_are_distinct_points_of_a_grid() -> None:
    batch = Problems(("subsets",), (2, 4, 7)).draw(300, generator(1))
    gaps = batch.y[:, 1:, 0] - batch.y[:, :-1, 0]
    real = batch.present[:, 1:]
    assert float(gaps[real].min()) >= 1 / 42 - 1e-6
    assert float(gaps[real].max()) > 2 / 7
    assert float(batch.y.max()) <= 1


def test_windows_are_neighbours_of_a_grid() -> None:
    batch = Problems(("value-windows",), (7,)).draw(900, generator(1))
    m = 1 / (batch.y[:, 1, 0] - batch.y[:, 0, 0])
    assert float((m - m.round()).abs().max()) < 1e-3
    assert {int(each.round()) for each in m} == set(range(7, 43))
    assert float((batch.y[:, :, 0] * m[:, None]).frac().sub(0.5).abs().min()) > 0.49  # multiples of 1/m
    assert 0 < float(batch.y.min()) < float(batch.y.max()) <= 1 + 1e-6


def test_draws_are_functions_of_the_key() -> None:
    problems = Problems(tuple(k for k in KINDS if k != "clouds"), (2, 7))
    one, same, other = (problems.draw(20, generator(*key)) for key in ((3, 1), (3, 1), (3, 2)))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not torch.equal(one.x, other.x)


def test_bad_problems_are_refused() -> None:
    with pytest.raises(ValueError, match=r"kind must be one of permutations, values, .*clouds, got 'sorted'"):
        Problems(("sorted",))
    with pytest.raises(ValueError, match="dim must be 1 for values, got 2"):
        Problems(("values",), dim=2)
    with pytest.raises(ValueError, match="must not be empty"):
        Problems(sizes=())


def two_points(attention: list[list[float]], x: list[float]) -> tuple[Output, Batch]:
    """One problem of two points whose answer is [1, 0], and a third that is absent."""
    A = torch.tensor([[*row, 0.0] for row in attention] + [[0.5, 0.5, 0.0]], dtype=torch.float64)
    points = torch.tensor([*x, 0.0], dtype=torch.float64).view(1, 1, 3, 1)
    batch = Batch(points, points, torch.tensor([[[True, True, False]]]), torch.tensor([[[1, 0, 2]]]))
    return Output(A.log().view(1, 1, 3, 3), A.view(1, 1, 3, 3) @ points), batch


def test_objectives_by_hand() -> None:
    output, batch = two_points([[0.25, 0.75], [0.5, 0.5]], x=[3.0, 1.0])
    assert sorted_error(output, batch).item() == pytest.approx((0.5**2 + 1.0**2) / 2)  # 1.5 and 2 where 1 and 3 are right
    assert attention_error(output, batch).item() == pytest.approx((2 / 16 + 2 / 4) / 2)
    assert distance(output, batch).item() == pytest.approx(((2 / 16 + 2 / 4) / 2) ** 0.5)
    expected = -(torch.tensor(0.75).log() + torch.tensor(0.5).log()).item() / 2
    assert cross_entropy(output, batch).item() == pytest.approx(expected)
    assert rows_right(two_points([[0.25, 0.75], [0.2, 0.8]], [3.0, 1.0])[0], batch).item() == 0.5


def test_a_perfect_list_does_not_need_the_right_attention() -> None:
    """Rows of A need only the right mean: x = (0, 1, 2) sorted with row 2 on the two outer points."""
    x = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64).view(1, 1, 3, 1)
    A = torch.tensor([[1.0, 0, 0], [0.5, 0, 0.5], [0, 0, 1]], dtype=torch.float64).view(1, 1, 3, 3)
    batch = Batch(x, x, torch.ones(1, 1, 3, dtype=torch.bool), torch.arange(3).view(1, 1, 3))
    output = Output(A.log(), A @ x)
    assert sorted_error(output, batch).item() == 0
    assert rows_right(output, batch).item() == pytest.approx(2 / 3)


def test_cross_entropy_has_finite_gradients_beside_absent_points() -> None:
    logits = torch.zeros(1, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    _, batch = two_points([[0.5, 0.5], [0.5, 0.5]], [3.0, 1.0])
    masked = logits.masked_fill(~batch.present[..., None, :], -torch.inf)
    cross_entropy(Output(masked, batch.x), batch).sum().backward()
    assert logits.grad is not None
    expected = torch.tensor([[0.25, -0.25, 0], [-0.25, 0.25, 0], [0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(logits.grad[0, 0], expected)
