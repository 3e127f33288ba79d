"""A copy of the tree in which tests run, as it is or with one place changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mutations.claims import NO_RATIO, Claim, Seen

WARM = ("numpy", "torch", "scipy.optimize", "scipy.stats", "ot")  # what the tests import beside otformer
WEAKER = 0.8  # of an upper bound: 20 % less
ASSERTED = ("AssertionError", "assert ")  # how the message of a failed assertion begins
LEFT_OUT = shutil.ignore_patterns("__pycache__", "node_modules", "*.egg-info")


class Test(NamedTuple):
    """What came of a test: its id, the properties that it has recorded, and why it failed ("" if it has not)."""

    id: str
    properties: dict[str, str]
    failed: str

    def is_of(self, nodes: Sequence[str]) -> bool:
        return any(self.id == node or self.id.startswith(f"{node}[") for node in nodes)


class Copy:
    """src/, tests/ and pyproject.toml in a folder of their own, and a process there that runs pytest (warm.py)."""

    def __init__(self, folder: Path, root: Path, modules: Sequence[str]) -> None:
        self.folder = folder
        for name in ("src", "tests"):
            shutil.copytree(root / name, folder / name, ignore=LEFT_OUT)
        shutil.copy(root / "pyproject.toml", folder)
        environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # bytecode does not tell two edits within a second apart
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # two seconds
        environment["POT_BACKEND_DISABLE_JAX"] = "1"
        call = [sys.executable, "-P", str(Path(__file__).with_name("warm.py")), *modules]
        self.warm = subprocess.Popen(
            call,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, nodes: Sequence[str], *more: str) -> tuple[list[Test], str]:
        """The tests, and what pytest said."""
        report, said = self.folder / "report.xml", self.folder / "said.txt"
        report.unlink(missing_ok=True)
        options = ["-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={report}", *more]
        assert self.warm.stdin
        assert self.warm.stdout
        print(json.dumps([*options, *(f"tests/{node}" for node in nodes)]), file=self.warm.stdin, flush=True)
        self.warm.stdout.readline()
        return (list(_tests(report)) if report.exists() else []), said.read_text("utf-8")[-2000:] if said.exists() else ""

    def stop(self) -> None:
        """Kill what runs there."""
        if self.warm.poll() is None:
            os.killpg(self.warm.pid, signal.SIGKILL)
        self.warm.wait()

    @contextmanager
    def changed(self, claim: Claim) -> Iterator[None]:
        place = self.folder / claim.file
        text = place.read_text("utf-8")
        if text.count(claim.old) != 1:
            raise ValueError(f"{claim.name}: what is changed occurs {text.count(claim.old)} times in {claim.file}")
        place.write_text(text.replace(claim.old, claim.new), "utf-8")
        try:
            yield
        finally:
            place.write_text(text, "utf-8")

    def unchanged(self, claims: Sequence[Claim]) -> dict[str, Seen]:
        """What the tests of these claims record. All have to pass."""
        tests, said = self.run(sorted({node for claim in claims for node in claim.tests}))
        return {claim.name: _recorded(claim, tests, said) for claim in claims}

    def noticed(self, claim: Claim) -> tuple[str, str]:
        """The test that fails by an assertion once the claim is stronger, or what is wrong."""
        with self.changed(claim):
            tests, said = self.run(claim.tests, "-x")
        failed = [test for test in tests if test.failed]
        if not failed:
            return "", f"no test fails if it is made stronger ({claim.mutation})" if tests else f"no test has run: {said}"
        if not failed[0].is_of(claim.tests) or not failed[0].failed.startswith(ASSERTED):
            return "", f"{failed[0].id or 'pytest'} does not fail by an assertion: {failed[0].failed}"
        return failed[0].id, ""


def _tests(report: Path) -> Iterator[Test]:
    for case in ET.parse(report).getroot().iter("testcase"):
        properties = {each.get("name", ""): each.get("value", "") for each in case.iter("property")}
        failure, error = case.find("failure"), case.find("error")
        failed = "" if failure is None else failure.get("message", "") or "no message"
        failed = failed if error is None else f"error: {error.get('message', '')}"
        yield Test(f"{case.get('file', '').removeprefix('tests/')}::{case.get('name')}", properties, failed)


def _recorded(claim: Claim, tests: list[Test], said: str) -> Seen:
    """The most problems that one of its tests has drawn, and the largest ratio of all."""
    own = [test for test in tests if test.is_of(claim.tests)]
    seen = Seen()
    seen.wrong += [f"{test.id} fails without a change: {test.failed}" for test in own if test.failed]
    seen.wrong += [f"{node} has not run: {said}" for node in claim.tests if not any(test.is_of([node]) for test in own)]
    seen.problems = max((int(test.properties.get("problems", 0)) for test in own), default=0)
    ratios = [float(test.properties[claim.ratio]) for test in own if claim.ratio in test.properties]
    seen.ratio = max(ratios, default=None)
    if seen.ratio is None and claim.ratio not in NO_RATIO:
        seen.wrong.append(f"none of its tests records “{claim.ratio}”")
    if claim.unsharp and seen.ratio is not None and seen.ratio > WEAKER:
        seen.wrong.append(f"called not sharp, but {seen.ratio:.2g} of the bound is measured: 20 % would be noticed")
    return seen
