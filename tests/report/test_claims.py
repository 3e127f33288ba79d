"""The claims: one table, the page made from it, and that all it names is there."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

from otformer.lab.experiments.registry import EXPERIMENTS
from otformer.lab.report import claims
from otformer.lab.report.claims import GROUPS, VERDICTS, Claim, Erratum, Row, counted, errata, markdown, read
from otformer.lab.report.html import CHIPS, write_report

ROOT = Path(__file__).parents[2]
ALL = read()


def test_the_page_is_made_from_the_table() -> None:
    made = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    assert made == markdown(), f"docs/paper.md is stale: {claims.COMMAND}"


def test_every_place_of_the_paper_has_a_row_in_its_order() -> None:
    """The figures, tables, theorems, propositions and open questions of the source, which is not in this repository."""
    paper = [claim for claim in ALL if claim.group == "paper"]
    items = " / ".join(claim.item for claim in paper)
    lines = [claim.line for claim in paper if claim.line]
    assert len(lines) >= 68
    assert lines == sorted(lines)
    assert [claim.line for claim in paper][len(lines) :] == [0] * (len(paper) - len(lines))  # the final version comes last
    for number in (2, 3, 5, 6, 7):
        assert re.search(rf"final version, figures? {number}\b", items), number
    for place in (*(f"figure {k}" for k in range(1, 10)), *(f"eq. ({k})" for k in range(1, 13)), "table 1", "table 2"):
        assert place in items, place
    for place in ("theorem 3.1", "theorem 3.2, informal", "theorem 3.2, formal", "proposition S", "proposition d", "lemma"):
        assert place in items, place
    assert sum(claim.item.startswith("open: ") for claim in paper) == 4
    assert sum(claim.item.startswith("contribution") for claim in paper) >= 3


def test_rows_are_whole_and_differ() -> None:
    assert set(Counter(claim.group for claim in ALL)) == set(GROUPS)
    for claim in ALL:
        assert claim.verdict in VERDICTS
        assert all((claim.item, claim.claim, claim.finding, claim.command, claim.page))
        assert claim.finding.endswith("."), claim.item
        assert "missing:" not in claim.finding.lower()
        assert (claim.line > 0) == (claim.group == "paper" and not claim.item.startswith("final version, "))
        if claim.verdict == "open":
            assert "Known: " in claim.finding, claim.item
    assert max(Counter((claim.group, claim.item, claim.claim) for claim in ALL).values()) == 1


@pytest.mark.parametrize("claim", [*ALL, *errata()], ids=lambda row: f"{getattr(row, 'group', 'errata')}: {row.item}")
def test_what_shows_and_explains_a_claim_exists(claim: Row) -> None:
    path, _, place = claim.path.partition("#")
    assert (ROOT / path).is_file(), path
    assert not place or f'<a id="{place}"></a>' in (ROOT / path).read_text(encoding="utf-8"), claim.path
    if claim.experiment:
        rest = claim.command.removeprefix(f"otformer reproduce {claim.experiment}")
        assert claim.experiment in EXPERIMENTS
        assert rest in ("", " --full")
    elif claim.command != "otformer reproduce --list":
        command, path = claim.command.split()
        assert command == "pytest"
        assert (ROOT / path).is_file(), path
        assert re.search(r"^def test_", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_experiment_shows_a_claim() -> None:
    assert {row.experiment for row in (*ALL, *errata())} - {""} == set(EXPERIMENTS)


def test_models_that_were_not_run_are_neither_confirmed_nor_refuted() -> None:
    """Claims on pretrained models and vectors: the finding says first what was not run."""
    untried = [claim for claim in ALL if claim.verdict == "not reproduced here"]
    assert {claim.group for claim in untried} == {"paper"}
    assert all(re.search(r"not (run|at hand)\.", claim.finding.split(". ")[0] + ".") for claim in untried)
    about = re.compile(r"Marian|BERT|wiki\.multi")
    rows = [claim for claim in ALL if claim.group == "paper" and about.search(claim.item + claim.claim)]
    assert rows
    assert {claim.verdict for claim in rows} == {"not reproduced here"}


def test_every_verdict_has_a_chip_and_is_explained() -> None:
    page = files("otformer.lab.report").joinpath("report.html").read_text(encoding="utf-8")
    assert set(CHIPS) == set(VERDICTS)
    for verdict, chip in CHIPS.items():
        assert f".chip.{chip} {{" in page
        assert page.count(f"--{chip}: ") == 3  # light, dark, print
        assert f"- *{verdict.capitalize()}*:" in markdown()


def test_errata_say_what_is_printed_what_is_correct_and_what_follows() -> None:
    assert len(errata()) == 4
    for row in errata():
        assert isinstance(row, Erratum)
        assert all(text.endswith(".") for text in (row.printed, row.correct, row.effect)), row.item
        assert f"| {row.printed} | {row.correct} | {row.effect} |" in markdown()


def test_the_table_is_parsed_once() -> None:
    """The report asks for it once per section."""
    assert read() is ALL


def claim(text: str, command: str, page: str, verdict: str = "holds") -> Claim:
    return Claim("a", command, page, "ours", text, verdict, "c.")


def test_counts_are_in_words() -> None:
    row = claim("b", "otformer reproduce sizes --full", "theory.md")
    assert counted([row]) == "1 holds"
    assert counted([row, row, claim("b", "d", "e", verdict="open")]) == "2 hold, 1 open"
    assert row.experiment == "sizes"


def test_bars_do_not_break_the_table() -> None:
    row = claim("|A − P*| falls", "otformer reproduce sizes", "README.md")
    line = claims._line(1, row, [row.item, row.claim, row.verdict, row.finding])
    assert "\\|A − P*\\| falls" in line
    assert "[README.md](../README.md)" in line
    assert all(len(re.findall(r"(?<!\\)\|", text)) == 8 for text in markdown().splitlines() if text.startswith("|"))


def test_the_command_writes_the_page_or_says_what_it_wants(tmp_path: Path) -> None:
    claims.main([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == markdown()
    with pytest.raises(SystemExit, match="one argument is expected"):
        claims.main([])


def test_the_report_has_the_groups_apart_and_links_what_is_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "sizes").mkdir()
    about = dict.fromkeys(("title", "source", "claim", "summary"), "s") | {"name": "sizes", "position": 1}
    about |= {"checks": {"a": True}, "settings": {}, "seed": 0, "full": False, "versions": {}, "seconds": 1.0}
    (tmp_path / "sizes" / "run.json").write_text(json.dumps(about), encoding="utf-8")
    page = write_report(tmp_path).read_text(encoding="utf-8")
    counts = [f"{len(rows)} claims: {counted(rows)}." for rows in ([c for c in ALL if c.group == g] for g in GROUPS)]
    places = [page.index(count) for count in counts]
    assert places == sorted(places)
    assert page.index("part-ours") < places[1] < page.index("part-errata") < page.index('data-label="printed"')
    assert page.count('<td data-label="verdict">') == len(ALL)
    assert '<a href="#sizes">sizes</a>' in page
    assert 'href="#convergence"' not in page
    assert "<code>otformer reproduce convergence</code>" in page
