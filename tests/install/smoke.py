"""What must work after `pip install otformer`, without extras: run as ``python smoke.py FOLDER`` by the Python of a venv.

It uses nothing but the package and the standard library, and writes into FOLDER. The last line says how many steps held.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

COMMANDS = ("solve", "sort", "align", "probe", "explore", "reproduce", "train", "bench")
OTFORMER = Path(sys.executable).with_name("otformer")
STEPS: list[Callable[[Path], None]] = []


def step(function: Callable[[Path], None]) -> Callable[[Path], None]:
    STEPS.append(function)
    return function


def otformer(folder: Path, *words: str, code: int = 0) -> tuple[str, str]:
    done = subprocess.run([OTFORMER, *words], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, f"otformer {' '.join(words)}: exit code {done.returncode}, {done.stderr}"
    return done.stdout, done.stderr


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
    result.save(folder / "plan.png")


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
def exact_transport_runs_or_names_its_extra(folder: Path) -> None:
    (folder / "c.csv").write_text("3,1\n1,0\n")
    if importlib.util.find_spec("numba"):
        assert json.loads(otformer(folder, "solve", "c.csv", "--cost", "--exact", "--json")[0])["value"] == 1
    else:
        assert (
            "needs numba, which is not installed: pip install 'otformer[exact]'"
            in otformer(folder, "solve", "c.csv", "--cost", "--exact", code=2)[1]
        )


@step
def points_of_files_are_solved(folder: Path) -> None:
    (folder / "x.csv").write_text("0,0\n1,1\n")
    assert "converged      True" in otformer(folder, "solve", "x.csv", "x.csv", "--out", "plan.npz")[0]
    assert (folder / "plan.npz").stat().st_size > 0


@step
def words_are_aligned(folder: Path) -> None:
    assert otformer(folder, "align", "the cat sleeps ||| le chat dort")[0] == "0-0 1-1 2-2\n"


@step
def models_are_probed_or_name_their_extra(folder: Path) -> None:
    pair = "the cat ||| le chat"
    if importlib.util.find_spec("transformers"):
        assert otformer(folder, "probe", "en-fr", pair)[0]
    else:
        for words in (("probe", "en-fr", pair), ("align", pair, "--method", "attention"), ("reproduce", "fox")):
            assert "pip install 'otformer[words]'" in otformer(folder, *words, code=2)[1], words


@step
def the_ray_engine_names_its_extra(folder: Path) -> None:
    if not importlib.util.find_spec("ray"):
        said = otformer(folder, "align", "the cat ||| le chat", "--engine", "ray", code=2)[1]
        assert "pip install 'otformer[ray]'" in said


@step
def the_explorer_is_saved(folder: Path) -> None:
    otformer(folder, "explore", "--save", "explore.html", "--no-open")
    assert (folder / "explore.html").stat().st_size > 100_000


@step
def every_command_has_help(folder: Path) -> None:
    for name in COMMANDS:
        out, _ = otformer(folder, name, "--help")
        assert "Examples:" in out, name
    assert otformer(folder, "reproduce", "--list")[0]
    assert otformer(folder, "train", "--list")[0]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    for each in STEPS:
        each(place)
    print(f"{len(STEPS)} of {len(STEPS)} steps hold on Python {sys.version.split()[0]}")
