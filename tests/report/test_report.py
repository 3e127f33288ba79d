"""The report page: what it holds, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from otformer.report.html import count_checks, scripts, write_report


def record(folder: Path, name: str, position: int, checks: dict[str, bool]) -> None:
    """A finished experiment, as the runner leaves it."""
    (folder / name).mkdir(parents=True)
    run = {
        "name": name,
        "position": position,
        "title": f"Title <{name}>",
        "source": "figure 9",
        "claim": "Claim & more",
        "summary": f"Summary of {name}.",
        "checks": checks,
        "settings": {},
        "seed": 0,
        "full": False,
        "versions": {"otformer": "0"},
        "seconds": 1.25,
    }
    (folder / name / "run.json").write_text(json.dumps(run), encoding="utf-8")
    rows = "\n".join(f"{k},{k / 3}" for k in range(70))
    (folder / name / "numbers.csv").write_text(f"n,<value>\n{rows}\n", encoding="utf-8")


def test_report_holds_every_experiment_in_order(tmp_path: Path) -> None:
    record(tmp_path, "later", 2, {"holds": True, "fails": False})
    record(tmp_path, "first", 1, {"a < b": True})
    (tmp_path / ".later-1-new").mkdir()  # what an interrupted run may leave is not a result
    (tmp_path / ".later-1-new" / "run.json").write_text("{", encoding="utf-8")
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert page.index('id="first"') < page.index('id="later"')
    assert "2 of 3 hold" in page
    for text in ("Title &lt;first&gt;", "Claim &amp; more", "Summary of later.", "a &lt; b", "✓", "✗", "10 more rows"):
        assert text in page
    for link in ("later/figure.png", "later/figure.svg", "later/numbers.csv", "later/run.json"):
        assert f'"{link}"' in page
    assert "<td>0.3333</td>" in page
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    assert "<script" not in page


def test_a_failed_check_is_loud_and_none_is_silent(tmp_path: Path) -> None:
    record(tmp_path, "good", 1, {"holds": True})
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert 'role="alert"' not in page
    assert 'class="failed"' not in page
    record(tmp_path, "bad", 2, {"x_i < 1": False, "holds": True})
    page = write_report(tmp_path).read_text(encoding="utf-8")
    alert = page[page.index('role="alert"') : page.index("<nav")]
    assert "1 check does not hold" in alert
    assert '<a href="#bad">' in alert
    assert "x<sub>i</sub> &lt; 1" in alert
    assert re.findall(r'<section id="(\w+)" class="failed">', page) == ["bad"]


def test_checks_are_counted_over_records() -> None:
    assert count_checks([]) == (0, 0)
    assert count_checks([{"checks": {"a": True, "b": False}}, {"checks": {}}, {"checks": {"c": True}}]) == (2, 3)


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
