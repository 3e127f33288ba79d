"""The report page and the trace page: what they hold, and what they refuse."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from otformer.network import trace_page
from otformer.network.trace import Trace
from otformer.network.transformer import AligningTransformer
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


def traced(n: int = 5, m: int = 7, depth: int = 30) -> Trace:
    x, y = torch.rand(2, max(n, m), 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return AligningTransformer(2, 0.1, depth)(x[:n], y[:m], warn=False)


def embedded(path: Path) -> dict:
    """The data inside a trace page."""
    found = re.search(r"const data = (\{.*?\});\n", path.read_text(encoding="utf-8"))
    assert found
    return json.loads(found[1])


def attention(packed: str, shape: tuple[int, int]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed), dtype="<u2").reshape(shape) / 65535


def test_trace_page_embeds_the_trace(tmp_path: Path) -> None:
    trace = traced()
    trace.save(tmp_path / "trace.html")
    data = embedded(tmp_path / "trace.html")
    assert data["layers"] == list(range(31))
    assert data["reg"] == [0.1] * 31
    problem = data["problems"][0]
    assert (problem["n"], problem["m"], data["batch"]) == (5, 7, 1)
    C = torch.cdist(trace.prompt.Z[0, :5, :2], trace.prompt.Z[0, :7, 2:4]) ** 2
    for k in (0, 7, 30):
        u, v = (np.array(problem[name][k]) for name in "uv")
        P = np.exp((u[:, None] + v - C.numpy()) / 0.1 - 1)  # from the page's own u and v
        assert np.abs(attention(problem["rows"][k], (5, 7)) - P / P.sum(1, keepdims=True)).max() < 1e-5
        assert np.abs(attention(problem["columns"][k], (7, 5)) - (P / P.sum(0)).T).max() < 1e-5
        error = np.abs(P.sum(1) - 1).sum() + np.abs(P.sum(0) - 5 / 7).sum()
        assert problem["error"][k] == pytest.approx(error, abs=1e-5)


@pytest.mark.slow
def test_trace_page_needs_no_network(tmp_path: Path) -> None:
    traced().save(tmp_path / "trace.html")
    page = (tmp_path / "trace.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|<link|import\(|fetch\(", page)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.html"]


@pytest.mark.slow
def test_trace_page_of_a_ragged_batch_leaves_absent_points_out(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x = [torch.rand(n, 2, generator=generator, dtype=torch.float64) for n in (3, 6)]
    y = [torch.rand(n, 2, generator=generator, dtype=torch.float64) for n in (4, 6)]
    network = AligningTransformer(2, 0.1, 20)
    network(x, y, warn=False).save(tmp_path / "batch.html")
    network(x[0], y[0], warn=False).save(tmp_path / "alone.html")
    batch, alone = embedded(tmp_path / "batch.html"), embedded(tmp_path / "alone.html")
    assert [(p["n"], p["m"]) for p in batch["problems"]] == [(3, 4), (6, 6)]
    np.testing.assert_allclose(batch["problems"][0]["u"], alone["problems"][0]["u"], atol=1e-6)
    gap = attention(batch["problems"][0]["rows"][20], (3, 4)) - attention(alone["problems"][0]["rows"][20], (3, 4))
    assert np.abs(gap).max() < 2 / 65535


@pytest.mark.slow
def test_long_traces_are_thinned_to_sixty_layers_with_both_ends(tmp_path: Path) -> None:
    traced(depth=400).save(tmp_path / "trace.html")
    layers = embedded(tmp_path / "trace.html")["layers"]
    assert len(layers) <= 60
    assert (layers[0], layers[-1]) == (0, 400)
    assert len(embedded(tmp_path / "trace.html")["problems"][0]["rows"]) == len(layers)


def test_large_traces_show_fewer_layers_or_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced()
    monkeypatch.setattr(trace_page, "LARGEST_PAGE", 1000)  # 2 · 5 · 7 numbers of 16 bits a layer are 187 bytes
    trace.save(tmp_path / "few.html")
    layers = embedded(tmp_path / "few.html")["layers"]
    assert len(layers) == 5
    assert (layers[0], layers[-1]) == (0, 30)
    monkeypatch.setattr(trace_page, "LARGEST_PAGE", 300)
    with pytest.raises(ValueError, match=r"two layers of 5 × 7 attention"):
        trace.save(tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


def test_trace_page_to_a_missing_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing.*cannot be written"):
        traced(depth=3).save(tmp_path / "missing" / "trace.html")
