"""Sinkhorn's iteration is written three times in src, beside the oracle and the GPU kernels; a fourth fails here.

What counts as a loop: a ``for`` or ``while`` statement that in every turn computes a block. A block is

- a log-sum over one side of a plan: a call of ``log_ratio``, ``logsumexp`` or ``log_softmax``; or
- weights divided by sums of a plan: a division whose right side holds ``@``, ``.sum(…)`` or a name that was given one.

Two blocks of the second kind make a loop (one is a normalisation); of the first kind one is enough, for a symmetric problem
has one side. What a turn calls is read too: functions and methods of the same module, by name. A block that is passed to
a loop as a function is not seen there, which is how all others come to share `iterate`. The laboratory is not read: its
experiments write out the iterations of other papers, to compare with.

The three, each with the reason why it is not one of the others:

- ``network/alternating.py: iterate``, one problem or a batch in torch, plain or accelerated: every block is given to it;
- ``transport/solvers/newton.py: run``, one small problem in numpy, each step kept or dropped by the dual value;
- ``transport/solvers/stacked.py: run_stack``, many small problems in numpy or torch, each finishing for itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import otformer

SRC = Path(otformer.__file__).parent
LOOPS = {
    ("network/alternating.py", "iterate"),
    ("transport/solvers/newton.py", "run"),
    ("transport/solvers/stacked.py", "run_stack"),
}
# Loops that have blocks in them and do not alternate between rows and columns, but for the oracle.
OTHERS = {
    ("transport/reference.py", "sinkhorn_half_steps"): "the oracle",
    ("transport/solvers/network.py", "run"): "the layers of a network, by its schedule: steps of the paper, not of Sinkhorn",
    ("transport/solvers/blocks.py", "coarse_to_fine"): "one column block from a stage's points to the next one's",
    ("transport/exact/start.py", "_sampled"): "one column block from a sample to all points, some of them at a time",
}
NOT_READ = ("nn/balance_kernels.py", "transport/costs/gpu/", "lab/")
LOG_SUMS = {"log_ratio", "logsumexp", "log_softmax"}


def called(node: ast.AST) -> str | None:
    """The name of what a call calls, a function or a method."""
    if not isinstance(node, ast.Call):
        return None
    return getattr(node.func, "id", None) or getattr(node.func, "attr", None)


def inside(parts: list[ast.AST]) -> Iterator[ast.AST]:
    """Parts and all that is in them, but for functions that are only defined there."""
    while parts:
        node = parts.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            parts += ast.iter_child_nodes(node)


def reached(loop: ast.For | ast.While, functions: dict[str, list[ast.FunctionDef]], depth: int) -> list[ast.AST]:
    """The nodes of a turn, those of the functions that it calls included, and of those that these call, to a depth."""
    nodes, seen = list(inside([*loop.body])), set()
    fresh = nodes
    for _ in range(depth):
        names = {name for name in map(called, fresh) if name in functions} - seen
        seen |= names
        fresh = [node for name in names for function in functions[name] for node in inside([*function.body])]
        nodes = nodes + fresh
    return nodes


def is_sum(node: ast.AST, sums: set[str]) -> bool:
    """Whether an expression holds a product or a sum over an axis, or a name that was given one."""
    return any(
        (isinstance(part, ast.BinOp) and isinstance(part.op, ast.MatMult))
        or (called(part) == "sum" and isinstance(part.func, ast.Attribute) and bool(part.args or part.keywords))
        or getattr(part, "id", getattr(part, "attr", None)) in sums
        for part in ast.walk(node)
    )


def blocks(nodes: list[ast.AST]) -> tuple[int, int]:
    """How many log-sums, and how many divisions by sums."""
    given = [node for node in nodes if isinstance(node, ast.Assign) and is_sum(node.value, set())]
    names = {getattr(target, "id", getattr(target, "attr", None)) for node in given for target in node.targets} - {None}
    logs = {id(node) for node in nodes if called(node) in LOG_SUMS}
    divisions = {
        id(node)
        for node in nodes
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div)
        if is_sum(node.right if isinstance(node, ast.BinOp) else node.value, names)
    }
    return len(logs), len(divisions)


def loops(text: str) -> set[str]:
    """The functions of a text with a loop that computes blocks."""
    tree = ast.parse(text)
    functions: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
    found: set[str] = set()
    for depth in range(4):  # what calls a loop again and again, in stages, is not another one
        others = {name: group for name, group in functions.items() if name not in found}
        found |= {
            name
            for name, group in others.items()
            for loop in (node for function in group for node in ast.walk(function) if isinstance(node, (ast.For, ast.While)))
            if is_iteration(blocks(reached(loop, others, depth)))
        }
    return found


def is_iteration(count: tuple[int, int]) -> bool:
    return count[0] >= 1 or count[1] >= 2


PLANTED = {
    "logs": "def f(X):\n    for _ in range(9):\n        X = X - X.logsumexp(1)\n        X = X - X.logsumexp(0)",
    "kernel": "def f(k, u, v):\n    while True:\n        u, v = v, u - k.log_ratio(u, v, 1.0, rows=True)",
    "scalings": "def f(K, a, b, q):\n    while True:\n        s = K @ q\n        p = a / s\n        q = b / (K.T @ p)",
    "sums": "def f(P):\n    for _ in range(9):\n        P /= P.sum(1, keepdims=True)\n        P /= P.sum(0)",
    "a method": "class S:\n    def go(self):\n        while self.on:\n            self.turn()\n"
    "    def turn(self):\n        self.p = self.a / (self.K @ self.q)\n        self.q = self.b / (self.p @ self.K)",
}


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED)
def test_a_planted_loop_is_found(text):
    assert len(loops(text)) == 1


def test_what_is_no_loop_is_not_found():
    once = "def f(X):\n    for w in ws:\n        total += w / w.sum(1)\n    return X.logsumexp(1)"
    given = (
        "def f(k, v):\n    def step(v):\n        return k.log_ratio(v, v, 1.0, True)\n    for v in iterate(step, v): pass"
    )
    each = "def f(ws):\n    return [w.logsumexp(0) for w in ws]"  # keeps nothing from one to the next
    assert loops(once) == loops(given) == loops(each) == set()


def test_sinkhorns_iteration_is_written_three_times():
    files = {str(file.relative_to(SRC)): file.read_text("utf-8") for file in sorted(SRC.rglob("*.py"))}
    found = {(name, function) for name, text in files.items() if not name.startswith(NOT_READ) for function in loops(text)}
    passed = {("network/alternating.py", "iterate"), ("transport/solvers/stacked.py", "run_stack")}  # blocks are given to it
    assert found - passed == (LOOPS - passed) | set(OTHERS)
    for name, function in LOOPS:
        own = [node for node in ast.walk(ast.parse(files[name])) if getattr(node, "name", None) == function]
        assert any(isinstance(node, (ast.For, ast.While)) for part in own for node in ast.walk(part))
    assert len(LOOPS) <= 3
