"""Where things are done: sub-rooms point one way, every stage speaks to a cost's verbs, one place makes results."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import otformer
from otformer.transport.costs.cost import Cost
from otformer.transport.types import Problem

SRC = Path(otformer.__file__).parent
TRANSPORT = SRC / "transport"
# Sub-rooms of one line do not know each other; every line may import from those above it.
ORDER = [
    ["types", "compiled_cache"],
    ["compiled", "derivatives"],
    ["costs"],
    ["problem", "reference"],
    ["solvers", "needs"],
    ["exact", "sort"],
    ["result"],
    ["choose", "sharded"],
    ["variants", "ragged"],
    ["solve", "barycenter"],
    ["compat"],
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
KINDS = {
    "MatrixCost",
    "PointsCost",
    "RanksCost",
    "GraphCost",
    "Absorbed",
    "Dense",
    "Stream",
    "Entries",
    "OnGpu",
    "GpuStream",
}
MAKERS = {"Result", "ExactResult"}


def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text("utf-8")) for file in sorted(SRC.rglob("*.py"))}


def room(module: str) -> str:
    return module.removeprefix("otformer.transport.").split(".")[0]


def imported(tree: ast.AST) -> set[str]:
    """Sub-rooms of transport that a file imports, wherever it does; what only mypy reads is no import."""
    names: set[str] = set()
    parts = [tree]
    while parts:
        node = parts.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        parts += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {room(name) for name in names if name.startswith("otformer.transport.")}


def test_sub_rooms_of_transport_point_one_way():
    here = {path.stem for path in TRANSPORT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()} - {
        "__init__"
    }
    assert here == set(RANK)
    wrong = []
    for file, tree in trees().items():
        if TRANSPORT in file.parents:
            own = file.relative_to(TRANSPORT).parts[0].removesuffix(".py")
            others = imported(tree) - {own} if own != "__init__" else set()
            wrong += [f"{file.relative_to(SRC)} → {other}" for other in others if RANK[other] >= RANK[own]]
    assert not wrong, "\n".join(wrong)


def test_the_library_below_nn_does_not_know_it():
    wrong = [
        str(file.relative_to(SRC))
        for file, tree in trees().items()
        if file.relative_to(SRC).parts[0] in ("transport", "network", "theory")
        and any(
            "otformer.nn" in ast.unparse(node) for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))
        )
    ]
    assert not wrong


def forks(tree: ast.AST) -> list[str]:
    """Calls that ask which kind of cost, or kernel, something is."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
            names = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
            found += [ast.unparse(node)] * bool(names & KINDS)
    return found


def test_no_stage_asks_which_kind_of_cost_it_has():
    assert forks(ast.parse("isinstance(cost, (int, PointsCost))")) == ["isinstance(cost, (int, PointsCost))"]
    outside = {file: forks(tree) for file, tree in trees().items() if TRANSPORT / "costs" not in file.parents}
    assert not {file: found for file, found in outside.items() if found}


def test_mypy_refuses_what_is_no_verb_of_every_cost():
    """A stage that reads an attribute of one kind of cost does not pass `make types`, for a problem's cost is a `Cost`."""
    assert Problem.__annotations__["cost"] == "Cost"
    assert not {"C", "low", "x", "y", "p", "q", "rule"} & set(dir(Cost))


def makers(tree: ast.AST) -> int:
    """Places that build a result: by name, by a variable ``kind`` that holds the class, or by handing it to something."""
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            given = {arg.id for arg in node.args if isinstance(arg, ast.Name)}
            handed = name in ("starmap", "map", "partial", "replace") and given & {*MAKERS, "kind"}
            count += name in {*MAKERS, "kind"} or bool(handed)
    return count


@pytest.mark.parametrize(
    ("text", "count"),
    [("Result(1)", 1), ("list(starmap(ExactResult, facts))", 1), ("kind(**facts)", 1), ("isinstance(r, Result)", 0)],
)
def test_the_counter_of_makers_counts(text, count):
    assert makers(ast.parse(text)) == count


def test_one_place_builds_results():
    """One function makes one result, and one many at once; both in one file, which alone knows the fields."""
    transport = {file: tree for file, tree in trees().items() if TRANSPORT in file.parents}  # elsewhere kind means more
    places = {str(file.relative_to(SRC)): makers(tree) for file, tree in transport.items()}
    assert {file: count for file, count in places.items() if count} == {"transport/result/finish.py": 2}
