"""Processes that judge cases: a call without end is killed, a process that dies is replaced, a slow call has another try."""

from __future__ import annotations

import multiprocessing
import os
import time

from fuzz.workers import Job, Verdict, campaign, table


def job_of(run, tries=(0.2, 0.4, 0.2)):
    return Job(run, lambda: None, lambda family, seed: f"{family} number {seed}", tries)


def test_a_call_without_end_is_killed_and_the_next_one_runs():
    begun = multiprocessing.Value("i", 0)

    def endless(family, seed, say):
        say("calling")
        begun.value += 1
        time.sleep(60 if seed == 0 or begun.value == 3 else 0)  # the third call is the first of seed 1, which compiles
        return Verdict("ok", "", "", 0.0, 0.0)

    told = []
    found = campaign(job_of(endless), [("some", 0), ("some", 1)], 1, 60.0, lambda *said: told.append(said))
    assert found["some", 0] == Verdict("hang", "killed after 0.4 s", "some number 0", 0.4, 0.0)
    assert found["some", 1].kind == "ok"
    assert begun.value == 4
    assert told == [*found.items()]
    assert "| some | 2 | 1 | 1 |  |" in table(found, ["some", "none"], ["ok", "hang", "error"])


def test_a_process_that_dies_is_an_error_and_the_next_case_runs():
    def dying(family, seed, say):
        if seed == 0:
            os._exit(7)
        return Verdict("ok", "", "", 0.0, 0.0)

    found = campaign(job_of(dying), [("some", 0), ("some", 1)], 1, 60.0, lambda *_: None)
    assert [verdict.kind for verdict in found.values()] == ["error", "ok"]
    assert found["some", 0].why == "the process died, exit code 7"
