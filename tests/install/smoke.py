"""What must work after `pip install otformer`, without extras: run as ``python smoke.py FOLDER`` by the Python of a venv.

It does more where otformer-words and otformer-lab are installed, and checks the message where they are not. It uses nothing
but the packages and the standard library, and writes into FOLDER. The last line says how many steps held.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

COMMANDS = {  # by the package that brings them
    "otformer": ("solve", "sort", "explore"),
    "otformer-words": ("align", "transfer", "probe"),
    "otformer-lab": ("reproduce", "train", "bench"),
}
WORDS, LAB, PLOTS = (importlib.util.find_spec(name) for name in ("otformer.words", "otformer.lab", "matplotlib"))
ABSENT = [name for name, found in (("otformer-words", WORDS), ("otformer-lab", LAB)) if not found]
OTFORMER = Path(sys.executable).with_name("otformer")
STEPS: list[Callable[[Path], None]] = []


def step(function: Callable[[Path], None]) -> Callable[[Path], None]:
    STEPS.append(function)
    return function


def otformer(folder: Path, *words: str, code: int = 0) -> tuple[str, str]:
    done = subprocess.run([OTFORMER, *words], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, f"otformer {' '.join(words)}: exit code {done.returncode}, {done.stderr}"
    return done.stdout, done.stderr


def said_by(call: Callable[[], object]) -> str:
    """The message of the error that a call must raise."""
    try:
        call()
    except (ValueError, ImportError) as error:
        return str(error)
    raise AssertionError("no error")


@step
def comes_from_the_venv(folder: Path) -> None:
    import otformer as of

    assert Path(of.__file__).is_relative_to(sys.prefix), f"{of.__file__} is not in {sys.prefix}"
    assert otformer(folder, "--version")[0] == f"otformer {of.__version__}\n"


@step
def every_public_name_is_there(folder: Path) -> None:
    import otformer as of

    for name in of.__all__:
        assert getattr(of, name) is not None


@step
def solves(folder: Path) -> None:
    import otformer as of

    result = of.solve([[0.0, 1.0], [1.0, 0.0]], reg=0.1)
    assert result.converged
    assert abs(result.plan.sum() - 1) < 1e-6
    result.save(folder / "plan.html")
    if PLOTS:
        result.save(folder / "plan.png")
    else:
        assert "pip install 'otformer[plots]'" in said_by(lambda: result.save(folder / "plan.png"))
        assert "pip install 'otformer[plots]'" in said_by(result.plot)


@step
def sorts(folder: Path) -> None:
    import otformer as of

    assert list(of.argsort([3.0, 1.0, 2.0])) == [1, 2, 0]
    assert otformer(folder, "sort", "3", "1", "2")[0] == "1\n2\n3\n"


@step
def the_network_runs_and_its_trace_is_a_page(folder: Path) -> None:
    import otformer as of

    trace = of.AligningTransformer(dim=1, reg=0.01, depth=200, schedule="annealed")([[0.9], [0.1]], [[0.0], [1.0]])
    assert trace.attention(-1).argmax(1).tolist() == [1, 0]
    trace.save(folder / "trace.html")
    trained = of.load_trained("sort-beyond")
    assert trained([0.75, 0.25, 1.0, 0.5], [0.25, 0.5, 0.75, 1.0]).argmax(1).tolist() == [1, 3, 0, 2]


@step
def exact_transport_runs(folder: Path) -> None:
    (folder / "c.csv").write_text("3,1\n1,0\n")
    assert json.loads(otformer(folder, "solve", "c.csv", "--cost", "--exact", "--json")[0])["value"] == 1


@step
def points_of_files_are_solved(folder: Path) -> None:
    (folder / "x.csv").write_text("0,0\n1,1\n")
    assert "converged      True" in otformer(folder, "solve", "x.csv", "x.csv", "--out", "plan.npz")[0]
    assert (folder / "plan.npz").stat().st_size > 0


@step
def words_are_aligned_or_name_their_package(folder: Path) -> None:
    import otformer as of

    pair = "the cat sleeps ||| le chat dort"
    if WORDS:
        assert otformer(folder, "align", pair)[0] == "0-0 1-1 2-2\n"
        assert otformer(folder, "probe", "en-fr", pair)[0]
    else:
        assert "pip install 'otformer-words'" in said_by(lambda: of.align(pair))
        assert "words" not in dir(of)


@step
def the_ray_engine_names_its_extra(folder: Path) -> None:
    if WORDS and not importlib.util.find_spec("ray"):
        said = otformer(folder, "align", "the cat ||| le chat", "--engine", "ray", code=2)[1]
        assert "pip install 'otformer-words[ray]'" in said


@step
def the_explorer_is_saved(folder: Path) -> None:
    otformer(folder, "explore", "--save", "explore.html", "--no-open")
    assert (folder / "explore.html").stat().st_size > 100_000


@step
def every_command_has_help_or_names_its_package(folder: Path) -> None:
    for package, names in COMMANDS.items():
        for name in names:
            if package in ABSENT:
                for words in ((name, "--help"), (name, "--list"), (name, "a", "--b", "c")):
                    out, said = otformer(folder, *words, code=2)
                    assert out == ""
                    assert said.startswith(f"otformer: {name} needs the package {package}, which is not installed: pip ")
                    assert said.count("\n") == 1
            else:
                assert "Examples:" in otformer(folder, name, "--help")[0], name
    assert all(name in otformer(folder, "--help")[0] for names in COMMANDS.values() for name in names)


@step
def experiments_run(folder: Path) -> None:
    if LAB:
        assert otformer(folder, "train", "--list")[0]
        assert otformer(folder, "reproduce", "sizes", "--out", "report")[0]
        assert (folder / "report/index.html").is_file()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    for each in STEPS:
        each(place)
    print(f"{len(STEPS)} of {len(STEPS)} steps hold on Python {sys.version.split()[0]}")
