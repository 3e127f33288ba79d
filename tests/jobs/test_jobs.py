"""The corpus engine: order, what is kept and made again, and what is on disk after anything goes wrong."""

import os
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import pytest

from otformer.files import checked_out, written
from otformer.words.jobs.jobs import ChunkFolder, Job, chunks, run, stream
from otformer.words.text.text import Pair

PAIRS = [Pair(f"a{k}", f"b{k}" if k % 3 else "") for k in range(25)]
EXPECTED = "".join(f"{p.source}+{p.target}\n" for p in PAIRS).encode()


@dataclass(frozen=True)
class Joined:
    """Work that writes down the first pair of every chunk it is given, and stops at one of them."""

    log: Path
    stop_at: str = ""
    error: type[BaseException] = KeyboardInterrupt

    def __call__(self):
        def work(pairs):
            with self.log.open("a") as log:
                log.write(pairs[0].source + "\n")
            if pairs[0].source == self.stop_at:
                raise self.error("stopped")
            return "".join(f"{p.source}+{p.target}\n" for p in pairs).encode()

        return work


def calls(log):
    return log.read_text().split() if log.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_chunks_come_in_order(tmp_path, workers):
    told = []
    job = Job(Joined(tmp_path / "log"), chunk=4, workers=workers)
    assert b"".join(stream(job, iter(PAIRS), told.append)) == EXPECTED
    assert told == [4] * 6 + [1]
    assert sorted(calls(tmp_path / "log")) == sorted(f"a{k}" for k in range(0, 25, 4))


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    out, log, told = tmp_path / "out", tmp_path / "log", []
    out.write_bytes(b"of an earlier run")
    with pytest.raises(KeyboardInterrupt):
        run(Job(Joined(log, stop_at="a12"), chunk=4), iter(PAIRS), out)
    assert out.read_bytes() == b"of an earlier run"
    assert len(ChunkFolder(out)) == 3
    log.unlink()
    run(Job(Joined(log), chunk=4), iter(PAIRS), out, encode=bytes.upper, progress=told.append)
    assert out.read_bytes() == EXPECTED.upper()
    assert calls(log) == ["a12", "a16", "a20", "a24"]
    assert sum(told) == 25
    assert sorted(os.listdir(tmp_path)) == ["log", "out"]


def test_other_settings_and_other_text_start_anew(tmp_path):
    out, log = tmp_path / "out", tmp_path / "log"
    with pytest.raises(KeyboardInterrupt):
        run(Job(Joined(log, stop_at="a12"), {"reg": 1}, chunk=4), iter(PAIRS), out)
    log.unlink()
    with pytest.raises(KeyboardInterrupt):
        run(Job(Joined(log, stop_at="a12"), {"reg": 2}, chunk=4), iter(PAIRS), out)
    assert calls(log) == ["a0", "a4", "a8", "a12"]
    log.unlink()
    run(Job(Joined(log), {"reg": 1}, chunk=4), [Pair("new", ""), *PAIRS[1:]], out)
    assert calls(log) == ["new", "a12", "a16", "a20", "a24"]
    assert out.read_bytes() == b"new+\n" + EXPECTED[len("a0+\n") :]
    assert sorted(os.listdir(tmp_path)) == ["log", "out"]


def test_errors_of_the_work_leave_finished_chunks_only(tmp_path):
    with pytest.raises(ValueError, match="stopped"):
        run(Job(Joined(tmp_path / "log", "a0", ValueError), chunk=4), iter(PAIRS), tmp_path / "out")
    assert os.listdir(tmp_path) == ["log"]


@dataclass(frozen=True)
class Dying:
    """Work whose process dies."""

    def __call__(self):
        return lambda pairs: os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_worker_process_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="a worker process has died"):
        run(Job(Dying(), chunk=4, workers=2), iter(PAIRS), tmp_path / "out")
    assert os.listdir(tmp_path) == []


class Threads:
    def __call__(self):
        import torch

        return lambda pairs: b"%d" % torch.get_num_threads()


@pytest.mark.slow
def test_worker_processes_share_the_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    asked = [sys.executable, "-c", "import torch; print(torch.get_num_threads())"]
    alone = int(subprocess.run(asked, capture_output=True, check=True).stdout)
    assert set(stream(Job(Threads(), chunk=5, workers=2), PAIRS)) == {b"%d" % max(1, alone // 2)}


class Sources:
    def __call__(self):
        return lambda pairs: "".join(p.source for p in pairs).encode()


@pytest.fixture
def small_files():
    """Files of more than 4096 bytes cannot be written: what a full disk does, in the middle of a write."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_files")
def test_full_disk_leaves_nothing_half_written(tmp_path):
    big = [Pair("x" * 3000, ""), Pair("y" * 3000, "")]
    with pytest.raises(ValueError, match="cannot be written: File too large"):
        run(Job(Sources()), big, tmp_path / "out")  # the chunk is too large
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match=r"out cannot be written: File too large"):
        run(Job(Sources(), chunk=1), big, tmp_path / "out")  # the chunks are not, the output is
    assert os.listdir(tmp_path) == ["out.parts"]
    assert len(ChunkFolder(tmp_path / "out")) == 2


def test_devices_are_written_to_and_stay(tmp_path):
    with pytest.raises(ValueError, match="/dev/full cannot be written: No space left"):
        run(Job(Joined(tmp_path / "log")), iter(PAIRS), "/dev/full")
    assert Path("/dev/full").is_char_device()
    run(Job(Joined(tmp_path / "log")), iter(PAIRS), "/dev/null")
    assert Path("/dev/null").is_char_device()
    assert not Path("/dev/null.parts").exists()


def test_links_are_followed_and_outputs_checked(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    run(Job(Joined(tmp_path / "log")), iter(PAIRS), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == EXPECTED
    with pytest.raises(ValueError, match=r"the folder .*none does not exist"):
        checked_out(tmp_path / "none" / "out")
    with pytest.raises(ValueError, match="it is a folder"):
        checked_out(tmp_path)
    with pytest.raises(ValueError, match="File name too long"):
        checked_out(tmp_path / ("x" * 240))
    with pytest.raises(TypeError), written(tmp_path / "other") as out:
        out.writelines([b"half", "no bytes"])
    assert not (tmp_path / "other").exists()


def test_memory_is_that_of_a_chunk():
    pairs = (Pair("x" * 1000, "y" * 1000) for _ in range(20_000))  # 40 MB
    tracemalloc.start()
    size = sum(map(len, stream(Job(Counted(), chunk=100), pairs)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 20_000
    assert peak < 2e6


class Counted:
    def __call__(self):
        return lambda pairs: b"." * len(pairs)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"chunk": 0}, "chunk must be"), ({"workers": 0}, "workers must be"), ({"engine": "spark"}, "engine must be one of")],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        Job(Counted(), **options)


def test_an_empty_corpus_is_an_empty_file(tmp_path):
    assert list(chunks([], 3)) == []
    run(Job(Counted()), [], tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_a_killed_parent_end_the_worker_processes(tmp_path, sent):
    """A terminal sends Ctrl-C to all processes of a group, a kill meets the parent alone. No process must be left, and the
    chunks that were done must be."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, time\n"
        "from otformer.words.jobs.jobs import Job, run\n"
        "class Slow:\n"
        "    def __call__(self):\n"
        "        return lambda pairs: (time.sleep(0.1), b'.')[1]\n"
        "if __name__ == '__main__':\n"
        "    run(Job(Slow(), chunk=1, workers=2), [(str(k), '') for k in range(1000)], sys.argv[1],\n"
        "        progress=lambda done: print('done', flush=True))\n"
    )
    done = subprocess.Popen(
        [sys.executable, script, tmp_path / "out"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert done.stdout.readline() == b"done\n"
    (os.killpg if sent == signal.SIGINT else os.kill)(done.pid, sent)
    _, errors = done.communicate(timeout=30)
    assert done.returncode in (-sent, 128 + sent)  # the second where Python's own end is interrupted
    assert errors.count(b"\nKeyboardInterrupt") == (sent == signal.SIGINT)
    assert len(ChunkFolder(tmp_path / "out")) >= 1
    until = time.monotonic() + 10
    while (left := running(done.pid)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left


def running(session):
    """The processes of a session, but for those that have ended and nobody asked for."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, _, _, of = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(of) == session and state != "Z":
            found.append(int(entry))
    return found
