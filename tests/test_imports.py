"""What a room may import, what loading costs, and that constants of one name mean one thing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

import otformer

SRC = Path(otformer.__file__).parent
FILES = sorted(SRC.rglob("*.py"))
# Rooms of one line do not know each other; every line may import from those above it. "" are the public names.
LIBRARY = [["leaves"], ["network"], ["transport"], ["nn", "theory", "learning"], [""], ["explorer"], ["cli"], ["__main__"]]
WORDS_ROOMS = ("text", "jobs", "models", "align", "probe", "aligning", "projection", "commands")
WORDS = [[f"words.{name}"] for name in WORDS_ROOMS] + [["words"]]
LAB = [
    ["lab", "lab.training_loop"],
    ["lab.training", "lab.translators", "lab.benchmarks", "lab.explorer_data", "lab.author"],
    ["lab.experiments"],
    ["lab.report"],
    ["lab.author_command"],
    ["lab.commands"],
]
ORDER = [*LIBRARY, *WORDS, *LAB]
LEAVES = {"_version", "array_files", "callers", "checks", "elsewhere", "errors", "extras", "figures", "files", "locks"}
LEAVES |= {"memory", "moved", "problem_files", "show", "statistics", "tensor_files", "weight_checks"}
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}


def room(module: str) -> str:
    """The room of a module: otformer.transport.solve is in transport, otformer.lab.report.html in lab.report."""
    name, *rest = module.removeprefix("otformer").removeprefix(".").split(".")
    if name in ("lab", "words") and rest:
        return f"{name}.{rest[0]}"
    return "leaves" if name in LEAVES else name


def module_of(file: Path) -> str:
    parts = file.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file) for file in FILES}


def imported(text: str) -> set[str]:
    """The modules of the package that a text imports, wherever it does: lazily, or for type checkers alone."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else str(node.module) for name in inside}
    return {name for name in found if name.split(".")[0] == "otformer"}


def test_the_reader_of_imports_finds_lazy_ones_and_tells_modules_from_names():
    text = "from otformer import checks, solve\ndef f():\n    import otformer.nn, os\n    from otformer.cli.main import main"
    assert imported(text) == {"otformer.checks", "otformer", "otformer.nn", "otformer.cli.main"}
    names = ("otformer", "otformer.nn", "otformer.files", "otformer.words.text.text", "otformer.lab.report.html")
    assert [room(name) for name in names] == ["", "nn", "leaves", "words.text", "lab.report"]


def test_every_room_has_its_place():
    assert {room(module) for module in MODULES} == set(RANK)


@pytest.mark.parametrize("name", [name for rooms in ORDER for name in rooms if name])
def test_dependencies_point_one_way(name):
    wrong = [
        f"{module_of(file)} → {other}"
        for file in FILES
        if room(module_of(file)) == name
        for other in sorted(imported(file.read_text("utf-8")))
        if room(other) != name and RANK[room(other)] >= RANK[name]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_library_imports_neither_words_nor_lab():
    """Nor lazily. The public names of words are the one exception; the command line names its modules in a table."""
    library = {name for rooms in LIBRARY for name in rooms}
    wrong = {
        (module_of(file), other)
        for file in FILES
        if room(module_of(file)) in library
        for other in imported(file.read_text("utf-8"))
        if room(other) not in library
    }
    assert wrong == {("otformer", "otformer.words"), ("otformer", "otformer.words.aligning")}


def constants(file: Path) -> dict[str, str]:
    """Module-level constants, by name: the source of their values."""
    found = {}
    for node in ast.parse(file.read_text("utf-8")).body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            named = {n.id: ast.unparse(v) for n, v in pairs if isinstance(n, ast.Name) and n.id.strip("_").isupper()}
            found |= {name: re.sub(r"^constant\((.*)\)$", r"\1", value) for name, value in named.items()}  # of kernels
    return found


# What every experiment sets for itself; the meaning is the same in all.
PARAMETERS = {"N", "SIZES", "DIM", "DIMS", "REG", "REGS", "DEPTH", "PROBLEMS", "RECIPES"}


def constants_room(module: str) -> str:
    return "words" if room(module).startswith("words") else room(module)


@pytest.mark.parametrize("name", sorted({constants_room(module) for module in MODULES} - {"", "leaves"}))
def test_constants_of_one_name_have_one_value_in_a_room(name):
    places = defaultdict(lambda: defaultdict(list))
    for file in FILES:
        if constants_room(module_of(file)) == name:
            for constant, value in constants(file).items():
                if name == "lab.experiments" and constant in PARAMETERS:
                    continue
                places[constant][value].append(f"{file.relative_to(SRC)}: {constant} = {value[:40]}")
    wrong = [place for values in places.values() if len(values) > 1 for where in values.values() for place in where]
    assert not wrong, "\n".join(wrong)


def test_the_table_of_public_names_says_what_type_checkers_read():
    tree = ast.parse((SRC / "__init__.py").read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body for alias in node.names}
    assert typed == {**otformer._MODULES, **dict.fromkeys(otformer._ROOMS, "otformer")}
    assert sorted(otformer.__all__) == sorted(typed)
    for name in otformer.__all__:
        assert getattr(otformer, name) is not None


def test_dir_shows_public_names_only_and_others_are_errors():
    import otformer.checks  # a submodule that was imported is an attribute, but no public name

    assert set(dir(otformer)) == {*otformer.__all__, "__version__"}
    with pytest.raises(AttributeError, match="module 'otformer' has no attribute 'slove'"):
        otformer.slove  # noqa: B018


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("otformer.experiments.general_costs", "otformer.lab.experiments.general_costs", "error_table"),
        ("otformer.learning.recipes", "otformer.lab.training.recipes", "recipe"),
        ("otformer.words.training.variants", "otformer.lab.translators.variants", "VARIANTS"),
        ("otformer.explorer.make_data", "otformer.lab.explorer_data", "everything"),
    ],
)
def test_old_names_still_import_and_say_the_new_one(old, new, name, monkeypatch):
    for each in [each for each in sys.modules if f"{old}.".startswith(f"{each}.") and each not in MODULES]:
        monkeypatch.delitem(sys.modules, each)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}$"):
        found = getattr(import_module(old), name)
    assert found is getattr(import_module(new), name)
    monkeypatch.setattr("otformer.moved.installed", lambda part: False)
    monkeypatch.delitem(sys.modules, old)
    with pytest.raises(ImportError, match=f"{old} needs the package otformer-lab, which is not installed: pip install"):
        import_module(old)


COMMANDS = [
    "import otformer",
    *(
        f"from otformer.cli.main import main; sys.argv = {['otformer', *words.split()]!r}; main()"
        for words in ("--help", "--version", "-h", "solve --help", "probe -h", "reproduce --list", "train --list")
    ),
]
HEAVY = ("torch", "numpy", "scipy", "matplotlib", "ot", "transformers", "rich")


@pytest.mark.parametrize("code", COMMANDS)
def test_what_needs_no_torch_does_not_load_it(code):
    say = f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    call = [sys.executable, "-c", f"import atexit, sys; atexit.register(lambda: {say}); {code}"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "[]\n"
