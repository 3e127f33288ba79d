"""Sorting lists of any length, and exact assignment, with frozen annealed networks."""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import unit_cube
from otformer.lab.experiments.experiment import Context, Outcome, Row
from otformer.network.counting_sorter import CountingSorter
from otformer.network.schedule import Annealed
from otformer.network.transformer import AligningTransformer
from otformer.transport.reference import assignment

SORTER, SORTER_REG, SORTER_DEPTH = Annealed(omega=1.5), 1e-6, 288
SIZES = {2: 20, 3: 20, 5: 20, 10: 20, 50: 20, 200: 4, 1000: 1}  # n -> permutations, 100 each with `full`
NUMBERS = {5: 20, 10: 20, 50: 20, 200: 4}  # n -> lists of random numbers, 100 each with `full`
COUNTED = {**NUMBERS, 1000: 1}  # the same for the network that counts
MATCHER, MATCHER_REG, MATCHER_DEPTH = Annealed(omega=1.8), 1e-5, 700
DIMS, MATCHED_POINTS = (2, 5, 20), 100  # dimensions of the points to match, and how many there are per side


def run(context: Context) -> Outcome:
    generator = context.generator()
    sizes = dict.fromkeys(SIZES, 100) if context.full else SIZES
    sorted_rows, done, work = [], 0, sum(lists * n * n for n, lists in sizes.items())
    for n, lists in sizes.items():
        ranks = torch.stack([torch.randperm(n, generator=generator) for _ in range(lists)])
        for dtype in (torch.float32, torch.float64):
            sorted_rows.append(sort_lists("sort a permutation", *_points(ranks, dtype), ranks))
            done += lists * n * n
            context.progress(0.4 * done / work)
    number_rows = [_sort_numbers(n, 100 if context.full else lists, generator) for n, lists in NUMBERS.items()]
    context.progress(0.8)
    fresh = context.generator()
    counted_rows = [_count_numbers(n, 100 if context.full and n < 1000 else lists, fresh) for n, lists in COUNTED.items()]
    context.progress(0.9)
    matched_rows = [_match(dim, 20 if context.full else 5, generator) for dim in DIMS]
    all_sorted, all_counted, all_matched = (
        all(row["exact"] == row["problems"] for row in rows) for rows in (sorted_rows, counted_rows, matched_rows)
    )
    checks = {
        "sorted": all_sorted,
        "counted": all_counted,
        "matched": all_matched,
    }
    settings = {"sorting": {"reg": SORTER_REG, "depth": SORTER_DEPTH, "schedule": str(SORTER), "lists": sizes}}
    settings["matching"] = {"reg": MATCHER_REG, "depth": MATCHER_DEPTH, "schedule": str(MATCHER), "n": MATCHED_POINTS}
    rows: list[Row] = [*sorted_rows, *number_rows, *counted_rows, *matched_rows]
    numbers = {
        "permutations": _share(sorted_rows),
        "lists": _share(number_rows),
        "counted": _share(counted_rows),
        "matched": _share(matched_rows),
        "by_size": [f"{_share([row])} for n = {row['n']}" for row in number_rows],
        "sizes": [*sizes],
        "largest": max(sizes),
        "longest": max(NUMBERS),
        "longest_counted": max(COUNTED),
    }
    return Outcome(rows, _draw(sorted_rows, number_rows, generator), numbers, checks, settings)


def _share(rows: list[Row]) -> str:
    return f"{sum(row['exact'] for row in rows)} of {sum(row['problems'] for row in rows)}"


def _points(ranks: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The lists x = (rank+1)/n and the sorted targets y = 1/n … n/n, [B, n, 1] each."""
    n = ranks.shape[-1]
    x = (ranks.to(dtype) + 1) / n
    return x[..., None], ((torch.arange(n, dtype=dtype) + 1) / n).expand_as(x)[..., None]


def _sort_numbers(n: int, lists: int, generator: torch.Generator) -> Row:
    """Lists of uniform random numbers: the place of a number is its rank, which no single number tells."""
    x = torch.rand(lists, n, generator=generator, dtype=torch.float64)
    ranks = x.argsort(-1).argsort(-1)
    return sort_lists("sort numbers", x[..., None], _points(ranks, x.dtype)[1], ranks)


def _count_numbers(n: int, lists: int, generator: torch.Generator) -> Row:
    """Lists of uniform random numbers, sorted by two attention layers that count."""
    x, network = torch.rand(lists, n, generator=generator, dtype=torch.float64), CountingSorter()
    exact = sum(int((network(row).argmax(-1) == row.argsort().argsort()).all()) for row in x)
    return _row("count numbers", n, 1, x.dtype, 2, lists, exact)


def sort_lists(task: str, x: Tensor, y: Tensor, ranks: Tensor) -> Row:
    """Sort lists x [B, n, 1] by the arg-max of each attention row; right if that is the rank, for the whole list."""
    lists, n = ranks.shape
    network = AligningTransformer(1, SORTER_REG, SORTER_DEPTH, SORTER)
    at_once = max(1, 400_000 // n**2)  # lists in one batch: memory stays bounded
    batches = zip(x.split(at_once), y.split(at_once), ranks.split(at_once), strict=True)
    exact = sum(int((_places(network, xs, ys) == rs).all(-1).sum()) for xs, ys, rs in batches)
    return _row(task, n, 1, x.dtype, SORTER_DEPTH, lists, exact)


def _match(dim: int, problems: int, generator: torch.Generator) -> Row:
    """How many random problems in the unit cube are matched as scipy matches them."""
    x, y, costs = unit_cube(problems, MATCHED_POINTS, dim, generator=generator)
    places = _places(AligningTransformer(dim, MATCHER_REG, MATCHER_DEPTH, MATCHER), x, y)
    exact = sum(torch.equal(assignment(C), row) for C, row in zip(costs, places, strict=True))
    return _row("match points", MATCHED_POINTS, dim, x.dtype, MATCHER_DEPTH, problems, exact)


def _places(network: AligningTransformer, x: Tensor, y: Tensor) -> Tensor:
    """Where each x goes: the arg-max of its attention row after the last layer, [B, n]."""
    return network(x, y, keep="last", warn=False).attention().argmax(-1)


def _row(task: str, n: int, d: int, dtype: torch.dtype, layers: int, problems: int, exact: int) -> Row:
    """A line of the table; sorting and matching have the same columns."""
    name = str(dtype).removeprefix("torch.")
    return {"task": task, "n": n, "d": d, "dtype": name, "layers": layers, "problems": problems, "exact": exact}


def _draw(rows: list[Row], numbers: list[Row], generator: torch.Generator) -> figures.Figure:
    """Left: share of points in their place after each layer, as the frozen network runs. Right: share of lists exact."""
    fig, (path, share) = figures.figure(10, 3.6, 1, 2)
    for n, colour in ((10, figures.BLUE), (50, figures.ORANGE)):
        ranks = torch.randperm(n, generator=generator)
        lists = {"permutation": _points(ranks, torch.float64)[0][:, 0]}
        lists["random numbers"] = torch.rand(n, generator=generator, dtype=torch.float64).sort().values[ranks]
        for dash, (name, x) in zip(("-", ":"), lists.items(), strict=True):
            path.plot(_placed(x, ranks), dash, color=colour, label=f"{name}, n = {n}")
    path.set(xlabel="layer", ylabel="share of numbers in their place", title="As λ falls, numbers find their place")
    path.legend()
    for label, chosen, shift, colour in (
        ("permutations, float32", [row for row in rows if row["dtype"] == "float32"], -0.28, figures.BLUE),
        ("permutations, float64", [row for row in rows if row["dtype"] == "float64"], 0.0, figures.SKY),
        ("random numbers, float64", numbers, 0.28, figures.ORANGE),
    ):
        found = {row["n"]: row["exact"] / row["problems"] for row in chosen}
        share.bar([k + shift for k in range(len(SIZES))], [found.get(n, 0) for n in SIZES], 0.26, color=colour, label=label)
        for k, n in enumerate(SIZES):
            if not found.get(n):  # without a bar: say which of the two reasons
                word = "0 %" if n in found else "not run"
                share.text(k + shift, 0.02, word, rotation=90, ha="center", va="bottom", fontsize=7, color=figures.INK)
    share.set_xticks(range(len(SIZES)), [str(n) for n in SIZES])
    share.grid(visible=False, axis="x")
    share.set(
        xlabel="n", ylabel="share of lists sorted exactly", title="Share of lists right to the last number", ylim=(0, 1.45)
    )
    share.set_yticks([0, 0.25, 0.5, 0.75, 1])
    share.legend(loc="upper left")
    return fig


def _placed(x: Tensor, ranks: Tensor) -> list[float]:
    """Share of numbers whose arg-max is their rank, before the first layer and after each."""
    trace = AligningTransformer(1, SORTER_REG, SORTER_DEPTH, SORTER)(x[:, None], _points(ranks, x.dtype)[1], warn=False)
    return [float((trace.attention(k).argmax(-1) == ranks).double().mean()) for k in range(SORTER_DEPTH + 1)]
