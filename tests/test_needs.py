"""A run ends with the list of what it skipped, and fails where a skipped group is required (tests/needs.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from needs import GROUPS, missing

TESTS = """
import pytest
from needs import missing

@pytest.fixture
def browser():
    pytest.skip(missing("browser"))

@pytest.mark.parametrize("page", range(3))
def test_page(browser, page): ...

@pytest.mark.skipif(True, reason=missing("data"))
def test_data(): ...

def test_odd(): pytest.skip("the moon is full")

def test_runs(): ...

@pytest.mark.xfail(strict=True)
def test_expected(): assert False
"""
FILE = """
import pytest
from needs import missing

pytest.importorskip("no_such_module", reason=missing("ott"))

def test(): ...
"""
LIST = [
    "── not tested: what follows",
    f"  3 tests: browser: {GROUPS['browser']}",
    f"  1 test: data: {GROUPS['data']}",
    f"  1 whole file: ott: {GROUPS['ott']}",
    "  1 test: the moon is full",
]


Run = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest with the plugin, in a folder with the tests above: the exit status and the lines."""
    pytester.makepyfile(test_some=TESTS, test_file=FILE)

    def call(*options: str, require: str = "") -> tuple[int, list[str]]:
        monkeypatch.setenv("OTFORMER_REQUIRE", require)
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        done = pytester.runpytest_inprocess("-p", "needs", *options)
        return done.ret, [line for line in done.outlines + done.errlines if line]

    return call


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "two processes"])
def test_a_run_ends_with_what_it_skipped_by_group_and_how_to_get_it(run, options):
    status, lines = run(*options)
    assert (status, lines[-5:]) == (0, LIST)
    assert "1 passed" in lines[-6]
    assert "6 skipped" in lines[-6]


def test_the_list_follows_failed_tests_too(run, pytester):
    pytester.makepyfile(test_wrong="def test(): assert False")
    status, lines = run()
    assert (status, lines[-5:]) == (1, LIST)
    assert "1 failed" in lines[-6]


@pytest.mark.parametrize("require", ["browser", "node, data", "ott", "other,coq"])
def test_a_run_fails_where_a_required_group_was_skipped(run, require):
    status, lines = run(require=require)
    (wanted,) = {name.strip() for name in require.split(",")} - {"node", "coq"}
    assert (status, lines[-1]) == (1, f"FAILED: OTFORMER_REQUIRE wants {wanted}")
    assert lines[-6:-1] == LIST


def test_a_run_passes_where_required_groups_were_tested(run):
    status, lines = run(require="node,coq")
    assert (status, lines[-5:]) == (0, LIST)


def test_where_all_was_tested_the_list_is_empty_but_for_what_other_commands_run(run, pytester):
    status, lines = run(pytester.makepyfile("def test(): ..."), "-m", "not gpu and not slow", require=",".join(GROUPS))
    assert status == 0
    assert lines[-3:] == [
        "── not tested: nothing was skipped",
        "  tests marked gpu: make test-gpu runs them",
        "  tests marked slow: make test runs them",
    ]


def test_a_group_that_does_not_exist_is_refused(run):
    status, lines = run(require="browser,chrome")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert lines[-1].endswith(f"OTFORMER_REQUIRE must name some of {', '.join(GROUPS)}, got chrome")


def test_ci_requires_groups_that_exist():
    text = (Path(__file__).parents[1] / ".ci/run").read_text()
    (asked,) = [line.split("=")[1] for line in text.splitlines() if line.startswith("export OTFORMER_REQUIRE=")]
    assert set(GROUPS) == set(asked.split(","))
    assert all(missing(name).endswith(GROUPS[name]) for name in GROUPS)
