"""The report page: what it holds, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from otformer.lab.experiments.registry import EXPERIMENTS
from otformer.lab.report import claims
from otformer.lab.report.html import check_page, scripts, write_report


def record(folder: Path, name: str, checks: dict[str, bool] | None = None, **changes: Any) -> Path:
    """A finished experiment, as the runner leaves it."""
    (folder / name).mkdir(parents=True)
    run = {
        "name": name,
        "position": 0,
        "title": f"Title <{name}>",
        "source": "paper, figure 9",
        "claim": "Claim & more",
        "summary": f"Summary of {name}.",
        "checks": checks or {"it holds": True},
        "settings": {"n": 3},
        "seed": 0,
        "full": False,
        "versions": {"otformer": "0"},
        "seconds": 1.25,
        "finding": {"title": f"Finding of <{name}>", "brief": "One. Two & three.", "number": "0.5 < 1"},
    }
    (folder / name / "run.json").write_text(json.dumps(run | changes), encoding="utf-8")
    rows = "\n".join(f"{k},{k / 3}" for k in range(70))
    (folder / name / "numbers.csv").write_text(f"n,<value>\n{rows}\n", encoding="utf-8")
    return folder / name


def written_page(folder: Path) -> str:
    return write_report(folder).read_text(encoding="utf-8")


def section(page: str, name: str) -> str:
    return page[page.index(f'<section id="{name}"') :].split("</section>")[0]


def test_sections_stand_in_the_papers_order_then_ours_then_errata_then_others(tmp_path: Path) -> None:
    for position, name in enumerate(("errata", "unheard-of", "rates", "theorem-bound", "sizes", "fox")):
        record(tmp_path, name, position=position)
    (tmp_path / ".fox-1-new").mkdir()  # what an interrupted run may leave is not a result
    (tmp_path / ".fox-1-new" / "run.json").write_text("{", encoding="utf-8")
    page = written_page(tmp_path)
    assert re.findall(r'<section id="([\w-]+)"', page) == ["fox", "sizes", "theorem-bound", "rates", "errata", "unheard-of"]
    parts = [page.index(f'id="part-{part}"') for part in ("paper", "ours", "errata", "other")]
    assert parts == sorted(parts)
    assert page.index('id="errata"') > parts[2]


def test_a_few_experiments_come_before_the_claims_and_claims_of_others_are_folded(tmp_path: Path) -> None:
    record(tmp_path, "convergence")
    page = written_page(tmp_path)
    assert page.index("<nav") < page.index("<section") < page.index("<figure") < page.index('id="claims"')
    unfolded = re.sub(r'<details class="more">.*?</details>', "", page, flags=re.DOTALL)
    assert set(re.findall(r'data-label="place">([^<]*)<', unfolded)) == {"figure 3", "section 3"}
    assert len(re.findall(r'data-label="place"', page)) == len(claims.read())


def test_of_a_whole_report_the_claims_come_first(tmp_path: Path) -> None:
    for name in EXPERIMENTS:
        record(tmp_path, name)
    page = written_page(tmp_path)
    assert page.index("The paper's claims") < page.index("<nav") < page.index('id="part-paper"') < page.index("<section")
    assert "claims that are shown elsewhere" not in page


def test_a_section_has_its_finding_first_and_the_numbers_side_by_side(tmp_path: Path) -> None:
    record(tmp_path, "translation-attention-de", {"a < b": True, "c": False})
    found = section(written_page(tmp_path), "translation-attention-de")
    head, details = found.split("<details>")
    for text in (
        "Finding of &lt;translation-attention-de&gt;</h3>",
        "Claim &amp; more",
        "One. Two &amp; three.",
        "0.5 &lt; 1",
    ):
        assert text in head
    assert found.index("Finding of") < found.index("Claim") < found.index("<figure") < found.index("One. Two")
    assert "the last layer aligns over 80 %" in head  # the paper's number
    assert "59 % read at the output" in head  # of the full size
    assert "otformer reproduce translation-attention-de --full" in head
    assert "not reproduced here</span> figure 6" in head
    for text in (
        "Summary of",
        "<b>yes</b> a &lt; b",
        "<b>no</b> c",
        "n 3",
        "<td>0.3333</td>",
        "10 more rows",
        "&lt;value&gt;",
    ):
        assert text in details
    for link in ("figure.svg", "numbers.csv", "run.json"):
        assert f'"translation-attention-de/{link}"' in details


def test_at_full_size_nothing_refers_to_it_and_where_there_is_one_size_neither(tmp_path: Path) -> None:
    record(tmp_path, "fox", full=True)
    record(tmp_path, "sizes")
    page = written_page(tmp_path)
    assert "--full" not in section(page, "fox")
    assert "here, at full size" in section(page, "fox")
    assert "--full" not in section(page, "sizes")


def test_a_claim_that_does_not_hold_is_no_alarm_and_checks_are_not_counted(tmp_path: Path) -> None:
    record(tmp_path, "fox", {"it does not": False, "it does": True})
    page = written_page(tmp_path)
    assert 'role="alert"' not in page
    assert "✗" not in page
    assert "✓" not in page
    assert not re.search(r"\d+ of \d+ (checks )?hold", page)
    count = sum(claim.group == "paper" for claim in claims.read())
    assert len(re.findall(rf"\b{count} claims", page)) == 1


def test_a_record_without_a_finding_is_shown_with_its_title(tmp_path: Path) -> None:
    record(tmp_path, "sizes", finding=None)
    record(tmp_path, "fox", finding={"title": 3})
    page = written_page(tmp_path)
    assert "Title &lt;sizes&gt;</h3>" in page
    assert "Title &lt;fox&gt;</h3>" in page


def test_pictures_have_their_size_and_a_narrow_one_where_it_is_there(tmp_path: Path) -> None:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (640).to_bytes(4, "big") + (480).to_bytes(4, "big")
    (record(tmp_path, "sizes") / "figure.png").write_bytes(head)
    (record(tmp_path, "fox") / "figure-narrow.png").write_bytes(head)
    page = written_page(tmp_path)
    assert '<img src="sizes/figure.png" width="640" height="480"' in section(page, "sizes")
    assert "<source" not in section(page, "sizes")
    assert 'srcset="fox/figure-narrow.png" width="640" height="480"' in section(page, "fox")


def test_links_into_the_repository_lead_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otformer.lab.report.html.ROOT", Path(__file__).parents[2])  # an installed package has no repository
    record(tmp_path, "sizes")
    links = re.findall(r'href="([^"#]+\.(?:md|py))"', written_page(tmp_path))
    assert len(links) > 100
    assert all((tmp_path / unquote(link)).resolve().is_file() for link in links)


def test_a_page_needs_no_network_and_no_script(tmp_path: Path) -> None:
    record(tmp_path, "sizes")
    page = written_page(tmp_path)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    assert "<script" not in page


STRANGE = ["{", "{}", "[]", "null", "[" * 100_000, '{"name": "x"}', " " * 2_000_000]


@pytest.mark.parametrize("text", STRANGE, ids=lambda text: text[:9] + f" {len(text)}")
def test_a_strange_run_is_left_out_and_named(tmp_path: Path, text: str) -> None:
    record(tmp_path, "sizes")
    (tmp_path / "<b>x").mkdir()
    (tmp_path / "<b>x" / "run.json").write_text(text, encoding="utf-8")
    page = written_page(tmp_path)
    assert "none of this program: <code>&lt;b&gt;x</code>" in page
    assert "1 experiment," in page


@pytest.mark.parametrize(
    "change",
    [{"seed": "<script>"}, {"position": None}, {"checks": []}, {"seconds": "1"}, {"name": "other"}, {"full": 0}],
    ids=str,
)
def test_a_run_of_other_types_is_left_out(tmp_path: Path, change: dict[str, Any]) -> None:
    file = record(tmp_path, "sizes") / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | change), encoding="utf-8")
    page = written_page(tmp_path)
    assert "none of this program: <code>sizes</code>" in page
    assert "<script" not in page


def test_whatever_a_run_says_is_escaped(tmp_path: Path) -> None:
    evil = "<script>'\"&$x{y}"
    texts = dict.fromkeys(("title", "source", "claim", "summary"), evil)
    found = dict.fromkeys(("title", "brief", "number"), evil)
    folder = record(
        tmp_path, "a'\"><script>$b", {evil: True}, finding=found, settings={evil: evil}, versions={evil: evil}, **texts
    )
    (folder / "numbers.csv").write_text(f"{evil}\n{evil}\n", encoding="utf-8")
    page = written_page(tmp_path)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 10
    assert re.search(r'src="a%27%22%3E%3Cscript%3E%24b/figure.png"', page)


@pytest.mark.parametrize("table", [b"", b"\xff\xfe\x00", None])
def test_numbers_that_cannot_be_read_are_told(tmp_path: Path, table: bytes | None) -> None:
    file = record(tmp_path, "sizes") / "numbers.csv"
    file.unlink() if table is None else file.write_bytes(table)
    assert "numbers.csv cannot be read" in written_page(tmp_path)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("O(n^{3/2} e^{1/λ}/√ℓ)", "O(n<sup>3/2</sup> e<sup>1/λ</sup>/√ℓ)"),
        ("P*_λ, C_ij, |x − y|^2.5, 10^9", "P*<sub>λ</sub>, C<sub>ij</sub>, |x − y|<sup>2.5</sup>, 10<sup>9</sup>"),
        ("the state_dict, a < b", "the state_dict, a &lt; b"),
    ],
)
def test_scripts_are_shown_as_scripts(text: str, shown: str) -> None:
    assert scripts(text) == shown


def test_report_of_nothing_is_a_page(tmp_path: Path) -> None:
    assert "0 experiments" in write_report(tmp_path).read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"index\.html cannot be written"):
        write_report(tmp_path / "missing")
    (tmp_path / "index.html").mkdir()
    with pytest.raises(ValueError, match=r"index\.html cannot be written"):
        write_report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_a_page_of_someone_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<title>My thesis</title>")
    with pytest.raises(ValueError, match=r"index.html is no report of this program, and would be replaced: move it"):
        check_page(tmp_path)
    (tmp_path / "index.html").unlink()
    write_report(tmp_path)
    check_page(tmp_path)
