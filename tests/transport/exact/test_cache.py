"""What numba has compiled is kept in the user's cache folder, and no file there can break a call."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import config
from numba.core.caching import IndexDataCacheFile

from otformer.transport import compiled_cache as cache
from otformer.transport.compiled import compiled

SOURCE = "from helper import one\n\ndef double(x):\n    return 2 * x + one(x)\n"
HELPER = "from otformer.transport.compiled import compiled\n\n@compiled\ndef one(x):\n    return {}\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's cache folder, and no NUMBA_CACHE_DIR."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setattr(cache, "_sources", cache._sources.__wrapped__)
    for name in ("helper", "room"):  # of `loaded`: gone after the test
        monkeypatch.setitem(sys.modules, name, None)
    return tmp_path


def loaded(folder, one=1):
    """A compiled function of a room of two files, read anew, as by the next process."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "room.py").write_text(SOURCE)
    (folder / "helper.py").write_text(HELPER.format(one))
    for name in ("helper", "room"):
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        exec(compile((folder / f"{name}.py").read_text(), folder / f"{name}.py", "exec"), sys.modules[name].__dict__)
    return compiled(sys.modules["room"].double)


def hits(function):
    return sum(function.stats.cache_hits.values())


def test_code_lies_in_the_cache_folder_of_the_user_and_the_next_process_finds_it(home):
    assert loaded(home / "src")(3) == 7
    assert not (home / "src" / "__pycache__").exists()
    kept = [file.relative_to(home / "cache").parts for file in (home / "cache").rglob("*.nbc")]
    assert {parts[0] for parts in kept} == {"otformer"}
    again = loaded(home / "src")
    assert (again(3), hits(again)) == (7, 1)


def test_numba_cache_dir_goes_first(home, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(home / "asked"))
    assert loaded(home / "src")(3) == 7
    assert list((home / "asked").rglob("room.double*.nbc"))
    assert not (home / "cache").exists()


def test_two_checkouts_keep_their_own_code(home):
    assert (loaded(home / "one", 1)(3), loaded(home / "two", 2)(3)) == (7, 8)
    first, second = loaded(home / "one", 1), loaded(home / "two", 2)
    assert (first(3), second(3), hits(first), hits(second)) == (7, 8, 1, 1)


def test_a_function_is_compiled_anew_if_one_it_calls_has_changed_in_another_file(home):
    assert loaded(home / "src", 1)(3) == 7
    assert loaded(home / "src", 20)(3) == 26


def middle_zeroed(data):
    start, stop = len(data) // 2, min(len(data) // 2 + 4096, len(data) - 64)
    return data[:start] + bytes(stop - start) + data[stop:]


DAMAGES = {
    "cut short": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "garbage": lambda data: os.urandom(len(data)),
    "a page of zeros, as after a power cut": middle_zeroed,
    "a pickle of something else": lambda data: b"I1\n.",
}


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_compiled_anew_and_replaced(home, kind, damage):
    loaded(home / "src")(3)
    files = list((home / "cache").rglob(f"*.{kind}"))
    assert len(files) == 2
    for file in files:
        file.write_bytes(damage(file.read_bytes()))
    corrected = loaded(home / "src")
    assert (corrected(3), hits(corrected)) == (7, 0)
    after = loaded(home / "src")
    assert (after(3), hits(after)) == (7, 1)


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_file_that_cannot_be_read_is_no_fault_of_the_call(home, kind):
    """A folder in its place stands for a file of another user: nobody may read that, not even root."""
    loaded(home / "src")(3)
    for file in list((home / "cache").rglob(f"*.{kind}")):
        file.unlink()
        file.mkdir()
    assert loaded(home / "src")(3) == 7


@pytest.mark.parametrize("folder", ["/proc/nowhere", "/dev/null"])
def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(home, monkeypatch, folder):
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    assert loaded(home / "src")(3) == 7
    assert not (home / "src" / "__pycache__").exists()


def test_a_user_without_a_home_is_no_fault_of_the_call(home, monkeypatch):
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(Path, "home", nobody)
    assert loaded(home / "src")(3) == 7


def test_a_cache_folder_that_vanishes_is_made_again(home):
    function = loaded(home / "src")
    shutil.rmtree(home / "cache")
    assert function(3) == 7
    assert list((home / "cache").rglob("room.double*.nbc"))


def test_a_full_disk_is_no_fault_of_the_call(home, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "save", full)
    assert loaded(home / "src")(3) == 7


def test_the_first_compilation_is_logged_once(home, caplog):
    caplog.set_level(logging.INFO, "otformer")
    cache._tell.cache_clear()
    loaded(home / "src")(3)
    loaded(home / "other")(3)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "compiling" in caplog.text
    cache._tell.cache_clear()
    caplog.clear()
    loaded(home / "src")(3)
    assert not caplog.records


PLAIN = """
import numpy as np, otformer as of
from scipy.optimize import linear_sum_assignment, linprog
rng = np.random.default_rng(0)
C, x, y = rng.random((7, 7)), rng.random((12, 2)), rng.random((12, 2))
D = ((x[:, None] - y) ** 2).sum(2)
for M, found in ((C, of.solve(C, reg=0)), (D, of.solve_sample(x, y, reg=0))):
    best = M[linear_sum_assignment(M)].mean()
    assert found.converged and abs(found.value - best) < 1e-12, (found, best)
a, b = rng.random(12), rng.random(12)
a, b = a / a.sum(), b / b.sum()
sums = np.concatenate([np.kron(np.eye(12), np.ones(12)), np.kron(np.ones(12), np.eye(12))])
best = linprog(D.ravel(), A_eq=sums, b_eq=np.concatenate([a, b])).fun
assert abs(of.solve(D, a, b, reg=0).value - best) < 1e-9
assert abs(of.emd2(a, b, D) - best) < 1e-9
"""


def test_with_numba_switched_off_it_is_plain_python():
    off = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-W", "error", "-c", PLAIN], env=off, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
