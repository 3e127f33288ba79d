"""Sorting lists of any length, and exact assignment, with frozen annealed networks."""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import figures
from otformer.experiments._problems import unit_cube
from otformer.experiments.experiment import Context, Finding, Outcome, Row
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
        f"one network of {SORTER_DEPTH} ≤ 300 layers sorts every permutation of the grid, float32 and float64": all_sorted,
        "without transport, by counting, 2 attention layers sort every list of random numbers exactly": all_counted,
        f"one network of {MATCHER_DEPTH} layers finds scipy's assignment on every problem": all_matched,
    }
    settings = {"sorting": {"reg": SORTER_REG, "depth": SORTER_DEPTH, "schedule": str(SORTER), "lists": sizes}}
    settings["matching"] = {"reg": MATCHER_REG, "depth": MATCHER_DEPTH, "schedule": str(MATCHER), "n": MATCHED_POINTS}
    rows: list[Row] = [*sorted_rows, *number_rows, *counted_rows, *matched_rows]
    summary = _told([*sizes], sorted_rows, number_rows, counted_rows, matched_rows)
    found = _found(sorted_rows, number_rows, counted_rows, matched_rows)
    return Outcome(rows, _draw(sorted_rows, number_rows, generator), summary, checks, settings, found)


def _found(sorted_rows: list[Row], number_rows: list[Row], counted_rows: list[Row], matched_rows: list[Row]) -> Finding:
    largest = max(row["n"] for row in sorted_rows)
    return Finding(
        f"One frozen network of {SORTER_DEPTH} layers sorts {_share(sorted_rows)} permutations of up to {largest:,} numbers "
        "exactly",
        "λ falls over the layers, so that the error does not stop at that of P*_λ. Random numbers are harder, since close "
        f"neighbours share their places: {_share(number_rows)} lists up to n = {max(NUMBERS)} are right to the last number. "
        f"The depth belongs to transport, not to sorting: two attention layers that count sort {_share(counted_rows)} "
        f"lists; and in {', '.join(map(str, DIMS))} dimensions {MATCHER_DEPTH} layers find {_share(matched_rows)} "
        "assignments.",
        f"{_share(sorted_rows)} permutations, {_share(number_rows)} lists of random numbers",
    )


def _told(
    sizes: list[int], sorted_rows: list[Row], number_rows: list[Row], counted_rows: list[Row], matched_rows: list[Row]
) -> str:
    numbers = ", ".join(f"{_share([row])} for n = {row['n']}" for row in number_rows)
    return (
        f"One network of {SORTER_DEPTH} layers (λ falling from 1 to {SORTER_REG:g}, ω = {SORTER.omega}) put "
        f"{_share(sorted_rows)} random permutations of 1/n … n/n in order, n = {', '.join(map(str, sizes))}, in float32 and "
        "float64; a number's place is the arg-max of its attention row. The module itself ran, prompt and matrices. At n = "
        "1000 float32 leaves little room: with λ = 3e-6 the last two places of a number can tie to the last bit. The test "
        "is easier than it looks: each number equals its target, so the arg-max of layer 0 is right too (the solid curves "
        "start at 1, and the layers must find it again). Random numbers have no such hint; of those the same network sorts "
        f"{numbers}. Neighbours closer than about nλ/2 share their two places in the plan, and long lists have such "
        "neighbours. The depth is transport's, not sorting's: two attention layers that count the smaller numbers, bit by "
        f"bit, have {_share(counted_rows)} lists of random numbers right, n up to {max(COUNTED)}. "
        f"One network of {MATCHER_DEPTH} layers (λ down to {MATCHER_REG:g}, ω = {MATCHER.omega}) found scipy's "
        f"optimal assignment of {MATCHED_POINTS} points in {_share(matched_rows)} random problems with d = "
        f"{', '.join(map(str, DIMS))}. Both networks are built for costs up to about 1."
    )


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
