"""What tests need beside Python's packages, and the list of what was not tested that ends every run.

A test that cannot run here skips with ``missing(group)`` as its reason. After pytest's own summary the skipped tests are
listed by group, each with what to do about it; a reason that names no group is listed as it stands. OTFORMER_REQUIRE, group
names with commas between, makes a run fail in which a test of one of these groups was skipped: CI sets it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

GROUPS = {
    "browser": "our pages in Chromium; apt-get install chromium chromium-driver",
    "axe": "our pages by axe-core, for screen readers; npm ci --prefix tests/browser",
    "node": "the explorer's JavaScript; apt-get install nodejs (18 or newer)",
    "coq": "the proofs; apt-get install coq libcoq-coquelicot libcoq-interval",
    "ott": "agreement with OTT-JAX; pip install ott-jax",
    "sklearn": "scikit-learn's own checks, and its photographs; pip install scikit-learn",
    "data": "real corpora, dictionaries and vectors; set OTFORMER_DATA to their folder (docs/words.md)",
    "words": "language models; pip install transformers",
    "ray": "jobs by Ray; pip install 'otformer-words[ray]'",
    "exact": "compiled exact solvers; pip install numba",
    "linux": "kernels for a GPU, interpreted or compiled; triton exists for Linux only",
    "other": "whatever was skipped for a reason that names no group",
}
ELSEWHERE = {"gpu": "make test-gpu", "slow": "make test"}  # markers that a command leaves out, and the command that does not
PREFIX = "not tested here: "


def missing(group: str) -> str:
    """The reason to skip a test of a group."""
    return f"{PREFIX}{group}: {GROUPS[group]}"


needs_data = pytest.mark.skipif(not os.environ.get("OTFORMER_DATA"), reason=missing("data"))


def required() -> set[str]:
    """The groups of OTFORMER_REQUIRE."""
    asked = {name.strip() for name in os.environ.get("OTFORMER_REQUIRE", "").split(",")} - {""}
    if unknown := asked - set(GROUPS):
        raise pytest.UsageError(f"OTFORMER_REQUIRE must name some of {', '.join(GROUPS)}, got {', '.join(sorted(unknown))}")
    return asked


class NotTested:
    """Counts skipped tests, and whole files, by reason."""

    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()
        self.files: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.tests[_reason(report)] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.files[_reason(report)] += 1

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Around the hook of pytest's terminal, so that this comes after its summary."""
        yield
        if session.config.option.collectonly:
            return
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line("\n".join(self.lines(session.config.option.markexpr)))
        if wanted := sorted(required() & set(map(_group, self.tests + self.files))):
            reporter.write_line(f"FAILED: OTFORMER_REQUIRE wants {', '.join(wanted)}", red=True)
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def lines(self, chosen: str) -> list[str]:
        """The list; ``chosen`` is pytest's expression of markers."""
        found = [
            f"  {_count(self.tests[reason], self.files[reason])}: {reason.removeprefix(PREFIX)}"
            for reason in sorted(self.tests | self.files)
        ]
        left_out = [f"  tests marked {name}: {how} runs them" for name, how in ELSEWHERE.items() if f"not {name}" in chosen]
        return [f"── not tested: {'what follows' if found else 'nothing was skipped'}", *found, *left_out]


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    _path, _line, reason = report.longrepr
    return reason.removeprefix("Skipped: ")


def _group(reason: str) -> str:
    return reason.removeprefix(PREFIX).split(":")[0] if reason.startswith(PREFIX) else "other"


def _count(tests: int, files: int) -> str:
    parts = [f"{n} {name}{'s' * (n > 1)}" for n, name in ((tests, "test"), (files, "whole file")) if n]
    return " and ".join(parts)


def pytest_configure(config: pytest.Config) -> None:
    required()
    if not hasattr(config, "workerinput"):  # a process of xdist's: the one that started it hears of all skipped tests
        config.pluginmanager.register(NotTested(), "not tested")
