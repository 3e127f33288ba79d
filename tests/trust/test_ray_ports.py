"""ATTACK F5: a Ray cluster of our own listens on this machine alone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from helpers.shell import ENVIRONMENT
from needs import missing

SCRIPT = """
import glob, os, threading
from otformer.words.jobs.jobs import Job, stream

def ours():  # sockets of all processes that have the mark of this test in their environment
    for process in glob.glob("/proc/[0-9]*"):
        try:
            if os.environ["OTFORMER_TEST_MARK"].encode() in open(f"{process}/environ", "rb").read():
                yield from (os.readlink(handle) for handle in glob.glob(f"{process}/fd/*"))
        except OSError:
            pass  # it has ended meanwhile

def listening():
    rows = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").read().splitlines()[1:]]
    sockets = set(ours())
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}

def work():
    return len

if __name__ == "__main__":
    seen, done = set(), threading.Event()
    def watch():
        while not done.wait(0.2):
            seen.update(listening())
    watching = threading.Thread(target=watch)
    watching.start()
    assert list(stream(Job(work, {}, chunk=1, engine="ray"), [("a", "b")] * 2)) == [1, 1]
    done.set()
    watching.join()
    print(*seen)
"""
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}  # v4, v4 in v6, v6


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason=missing("ray"))
def test_f5_all_ports_of_our_own_cluster_are_on_loopback(tmp_path):
    script = tmp_path / "ports.py"
    script.write_text(SCRIPT)
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "RAY_ADDRESS"}
    environment["OTFORMER_TEST_MARK"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    seen = set(done.stdout.split())
    assert seen, "the cluster was not seen"
    assert seen <= LOOPBACK
