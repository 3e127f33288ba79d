"""proofs/check.py without Coq, or with one that fails: it names what was not checked, and takes no failure for a success."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "proofs"
spec = importlib.util.spec_from_file_location("check", FOLDER / "check.py")
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)


def run_check(folder: Path, coqc: str | None, *options: str) -> tuple[int, str]:
    """The exit code of check.py, and what it prints, with this shell script in the place of coqc."""
    if coqc is not None:
        (folder / "coqc").write_text(f"#!/bin/sh\n{coqc}\n", "utf-8")
        (folder / "coqc").chmod(0o755)
    call = [sys.executable, str(FOLDER / "check.py"), *options]
    done = subprocess.run(call, env={**os.environ, "PATH": str(folder)}, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


WITHOUT_LIBRARIES = """echo 'File "./Libraries.v", line 1, characters 0-43:
Error: Cannot find a physical path bound to logical path Coquelicot.' >&2; exit 1"""


@pytest.mark.parametrize("coqc", [None, WITHOUT_LIBRARIES], ids=["no Coq", "no libraries"])
def test_without_coq_every_theorem_that_was_not_checked_is_named(tmp_path, coqc) -> None:
    code, asked_for = run_check(tmp_path, coqc)
    assert code == 1
    code, said = run_check(tmp_path, coqc, "--if-installed")
    assert code == 0
    assert said == asked_for
    assert said.startswith("proofs: NOT CHECKED here: ")
    assert [line.strip() for line in said.splitlines() if line.startswith("  ")] == check.theorems()


@pytest.mark.parametrize("options", [(), ("--if-installed",), ("--record",)])
@pytest.mark.parametrize(
    ("coqc", "said"),
    [
        ("kill -9 $$", "ended with -9"),
        ("echo 'Fatal error: out of memory' >&2; exit 2", "out of memory"),
        ("exit 1", "no message"),
        ("exit 127", "ended with 127"),
        ("echo 'Error: Coquelicot.vo has bad magic number' >&2; exit 1", "cannot load its libraries"),
    ],
)
def test_a_coqc_that_fails_is_an_error(tmp_path, coqc, said, options) -> None:
    before = check.RECORD.read_bytes()
    code, printed = run_check(tmp_path, coqc, *options)
    assert code == 1
    assert printed.startswith("proofs: FAILED, and not checked\n")
    assert said in printed
    assert check.RECORD.read_bytes() == before


def test_a_coqc_that_takes_too_long_is_an_error(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "coqc").write_text("#!/bin/sh\nexec sleep 60\n", "utf-8")
    (tmp_path / "coqc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(check, "LIMIT", 0.2)
    monkeypatch.setattr(sys, "argv", ["check.py", "--if-installed"])
    assert check.main() == 1
    assert "more than 0.2 s" in capsys.readouterr().out
