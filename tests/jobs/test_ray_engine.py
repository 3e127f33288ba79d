"""The engine over Ray Data, on a local cluster of two workers: the local engine's bytes, also when a worker is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.test_jobs import running
from needs import missing
from otformer.words.jobs.jobs import Job, stream
from otformer.words.text.text import Pair

# A script of its own, under a time limit: what hangs is ended with all its processes.
SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from otformer.words.aligning import AlignWork
from otformer.words.jobs.jobs import Job, run, stream
from otformer.words.text.examples import examples
from otformer.words.text.text import Pair

folder = Path(sys.argv[1])

class Logged(AlignWork):
    def __call__(self):
        work = super().__call__()
        def logged(pairs):
            with open(folder / "log", "a") as log:
                log.write(f"{os.getpid()} {pairs[0].source}\\n")
            time.sleep(0.2)
            return work(pairs)
        return logged

class Bad:
    def __call__(self):
        def work(pairs):
            raise ValueError("pairs are bad")
        return work

def kill_one(done):
    lines = (folder / "log").read_text().splitlines()
    if not (folder / "killed").exists():
        pid = lines[-1].split()[0]
        os.kill(int(pid), signal.SIGKILL)
        (folder / "killed").write_text(pid)

if __name__ == "__main__":
    pairs = [Pair(" ".join(e.source), " ".join(e.target)) for e in examples("en-fr")]
    pairs.insert(7, Pair("", ""))
    made = dict(chunk=4, engine="ray", workers=2)
    def lines(found):
        return "".join(pair.line("json") + "\\n" for pair in found).encode()
    run(Logged("en-fr", by="spaces").job(**made), iter(pairs), folder / "ray", lines, progress=kill_one)
    print("the output", flush=True)
    run(AlignWork("en-fr", by="spaces").job(chunk=4), iter(pairs), folder / "local", lines)
    try:
        list(stream(Job(Bad(), **made), pairs))
    except ValueError as error:
        (folder / "error").write_text(str(error))
"""


@pytest.mark.slow
def test_two_workers_one_killed(tmp_path):
    """Under load Ray's own core has ended the driver now and then (status 1, no Python error): then the same command is
    given again, as a user would, and must go on to the same bytes."""
    pytest.importorskip("ray", reason=missing("ray"))
    (tmp_path / "script.py").write_text(SCRIPT)
    status, out, errors, left = _run(tmp_path)
    if status == 1 and b"Traceback" not in errors:
        status, out, errors, left = _run(tmp_path)
    assert status == 0, errors.decode()
    assert out == b"the output\n"  # what Ray says of the dead worker is not in it
    assert not left
    lines = (tmp_path / "ray").read_bytes()
    assert lines == (tmp_path / "local").read_bytes()
    assert lines.count(b"\n") == 61
    log = [line.split(" ", 1) for line in (tmp_path / "log").read_text().splitlines()]
    killed = (tmp_path / "killed").read_text()
    assert killed in {pid for pid, _ in log}
    assert len({pid for pid, _ in log}) >= 3  # two, and the one that took the place of the dead
    assert {first for _, first in log} == {" ".join(words) for words in _first_sources()}
    assert (tmp_path / "error").read_text() == "pairs are bad"
    assert not (tmp_path / "ray.parts").exists()


def _run(folder):
    """Status, output and errors of the script, and what is left of its processes."""
    script = subprocess.Popen(
        [sys.executable, folder / "script.py", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        out, errors = script.communicate(timeout=150)
    finally:
        left = _end(script.pid)
    return script.returncode, out, errors, left


def _first_sources():
    from otformer.words.text.examples import examples

    sources = [e.source for e in examples("en-fr")]
    sources.insert(7, ())
    return sources[::4]


def _end(session):
    """Kill what is left of a session half a minute after its end; the command lines of what there was."""
    until = time.monotonic() + 30
    while (left := running(session)) and time.monotonic() < until:
        time.sleep(0.1)
    names = [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:80] for pid in left]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return names


def test_without_ray_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(ValueError, match=r"engine ray is not installed: pip install 'otformer-words\[ray\]'"):
        list(stream(Job(lambda: lambda pairs: b"", engine="ray"), [Pair("a", "b")]))
