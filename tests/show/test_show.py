"""Results and trained modules show themselves: the right numbers, escaped, bounded, whole or not at all."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

import otformer as of
from helpers.shown import EVIL, parsed, printed
from needs import missing
from oracles import uniform
from otformer.show.coarse import blocks, blocks_of_pairs
from otformer.show.heat import Heat


def cells(html: str) -> dict[tuple[int, int], float]:
    """Row and column of every square that is drawn, and its opacity."""
    paths = [node for node in parsed(html).iter("path") if node.get("fill-opacity")]
    return {
        (int(i), int(j)): float(path.get("fill-opacity"))
        for path in paths
        for j, i in re.findall(r"M(\d+) (\d+)h1v1h-1z", path.get("d"))
    }


def test_a_notebook_shows_the_plan_and_the_verdict():
    M = uniform(0, 5, 7).numpy()
    r = of.solve(M, reg=0.1)
    html = r._repr_html_()
    found = cells(html)
    P = np.asarray(r.plan)
    for i in range(5):
        for j in range(7):
            assert found.get((i, j), 0.0) == pytest.approx(np.sqrt(P[i, j] / P.max()), abs=0.026)  # 20 levels
    text = " ".join(parsed(html).itertext())
    assert "✓ converged" in re.sub(r"\s+", " ", text)
    assert "5 × 7" in text


def test_what_has_not_converged_says_so():
    with pytest.warns(RuntimeWarning, match="not converged"):
        r = of.solve(uniform(0, 6, 6).numpy(), reg=1e-3, max_depth=2, schedule="gradient")
    assert "✗" in r._repr_html_()
    assert "✗ NOT converged" in printed(r)


def test_a_terminal_shows_the_same():
    text = printed(of.solve(1 - np.eye(3), reg=0.01))
    assert "▕██    ▏" in text
    assert "▕  ██  ▏" in text
    assert "▕    ██▏" in text
    assert "✓ converged" in text


def test_exact_results_show_their_pairs_and_proof():
    pytest.importorskip("numba", reason=missing("exact"))
    r = of.solve_sample(uniform(1, 100, 2).numpy(), uniform(2, 100, 2).numpy(), reg=0)
    P = r.dense()
    k = 4  # 100 points in cells of 4
    by_hand = P[np.argsort(P.argmax(1))].reshape(25, k, 25, k).sum((1, 3))  # rows sorted by their partner
    assert set(cells(r._repr_html_())) == {tuple(each) for each in np.argwhere(by_hand > 0).tolist()}
    assert "pairs with mass" in printed(r)
    np.testing.assert_allclose(r.plot().images[0].get_array(), P)


def test_blocks_are_sums_of_what_they_cover_for_every_kind_of_plan():
    P = np.random.default_rng(0).random((70, 45))
    by_hand = np.array([[P[i : i + 3, j : j + 2].sum() for j in range(0, 45, 2)] for i in range(0, 70, 3)])
    i, j = np.nonzero(P)
    kinds = P, torch.from_numpy(P).requires_grad_(), torch.from_numpy(P).float()
    for plan in kinds:
        np.testing.assert_allclose(blocks(plan), by_hand, rtol=1e-5)
    order = np.argsort(P.argmax(1), kind="stable")
    sorted_by_hand = np.array([[P[order][i : i + 3, j : j + 2].sum() for j in range(0, 45, 2)] for i in range(0, 70, 3)])
    np.testing.assert_allclose(blocks(P, by_partner=True), sorted_by_hand)
    np.testing.assert_allclose(blocks_of_pairs((i, j, P[i, j]), (70, 45)), sorted_by_hand)
    x, y = uniform(3, 70, 2), uniform(4, 45, 2)
    streamed, dense = (of.solve_sample(x, y, reg=0.1, executor=name) for name in ("stream", "dense"))
    np.testing.assert_allclose(blocks(streamed.plan), blocks(dense.plan), rtol=1e-4)


def test_rows_of_a_large_plan_are_sorted_by_their_partner_and_the_picture_says_so():
    x = uniform(5, 320, 1).numpy()
    r = of.solve_sample(x, np.sort(x, axis=0), reg=1e-4)  # rows in random order, columns in ascending one
    (heat, *_) = r._card().pictures
    near = sum(np.trace(heat.matrix, k) for k in (-1, 0, 1))
    assert near > 0.99 * heat.matrix.sum()
    assert heat.caption.startswith(
        "a cell is 10 × 10 entries added up; rows sorted by their partner; largest cell: 0.029; bars"
    )
    assert "<title>10 rows x, y 1 to 10:" in heat.svg(page=True)
    small = of.solve_sample(x[:20], np.sort(x[:20], axis=0), reg=1e-4)
    np.testing.assert_allclose(small._card().pictures[0].matrix, small.plan)  # of 20 points every row has its own cell
    assert "sorted" not in small._card().pictures[0].caption


def test_huge_plans_are_never_formed(monkeypatch):
    n = 3000
    r = of.solve_streamed(uniform(5, n, 3).float(), uniform(6, n, 3).float(), reg=0.5, tol=1e-2)
    monkeypatch.setattr(type(r.plan), "rows", lambda *_: pytest.fail("the plan was formed"))
    html = r._repr_html_()
    assert len(html) < 2000
    assert "9e+06 entries" in html
    assert "9e+06 entries" in printed(r)
    with pytest.raises(ValueError, match=r"Result cannot be drawn: the plan has 9e\+06 entries"):
        r.plot()


def drawn_lines(page: str) -> list[tuple[float, ...]]:
    """Both ends of every line between points on a page."""
    found = re.findall(r'd="M([\d.e-]+) ([\d.e-]+)L([\d.e-]+) ([\d.e-]+)"', page)
    return [tuple(map(float, line)) for line in found]


@pytest.mark.parametrize("kind", ["stream", "dense", "exact"])
def test_points_are_kept_and_of_many_some_are_drawn(kind, tmp_path):
    pytest.importorskip("numba", reason=missing("exact"))
    n = 1500
    x = uniform(7, n, 2).numpy()
    options = dict(reg=0) if kind == "exact" else dict(reg=1e-7, tol=0.1, executor=kind)
    r = of.solve_sample(x, x[::-1] + np.array([2, 0]), **options)
    r.save(tmp_path / "first.html")
    x += 5  # what becomes of the caller's points afterwards is not drawn
    r.save(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text("utf-8")
    assert page == (tmp_path / "first.html").read_text("utf-8")
    assert "1,000 of 1,500" in page
    assert len(page) < 200_000
    lines = drawn_lines(page)
    assert 190 <= len(lines) <= 400
    # Every x goes to its own copy, 2 to the right: all lines are level, and of one length.
    assert max(abs(a[1] - a[3]) for a in lines) < 0.5
    assert np.ptp([a[2] - a[0] for a in lines]) < 1


def test_a_page_says_what_was_asked_and_shows_the_sums(tmp_path):
    x, a = np.array([[0.0], [1.0]]), [0.75, 0.25]
    of.solve_sample(x, x, a=a, b=a, reg=0.125).save(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "λ = 0.125" in page
    assert "squared Euclidean distances of points with 1 coordinate" in page
    assert len(drawn_lines(page)) > 0
    titles = re.findall("<title>(x [12], y [12]): ([^<]+)</title>", page)
    plan = of.solve_sample(x, x, a=a, b=a, reg=0.125).plan
    assert [float(number) for _, number in titles] == pytest.approx(plan.ravel().tolist(), rel=1e-3)
    bars = re.search(r'opacity="\.4" d="([^"]+)"', page)[1]
    rows = [float(each) for each in re.findall(r"h([\d.]+)v[\d.]+h-", bars)]
    columns = [float(each) for each in re.findall(r"v-([\d.]+)h[\d.]+v", bars)]
    for sums in (rows, columns):
        assert sums[0] / sums[1] == pytest.approx(3, rel=1e-2)
    of.solve(np.eye(2), reg=0.1, unbalanced=1.0).save(tmp_path / "u.html")
    assert "a penalty for every inexact sum" in (tmp_path / "u.html").read_text("utf-8")
    cosine = of.cosine(torch.eye(3).double(), torch.eye(3).double())
    assert "of the features given" in of.solve(cosine, reg=0.1)._card().about


def test_cards_are_bounded():
    n = 500
    r = of.solve(np.zeros((n, n)), reg=1.0)  # as diffuse as can be: every cell is drawn
    assert len(r._repr_html_()) < 30_000
    assert len(cells(r._repr_html_())) == 32 * 32


def test_no_points_and_no_mass():
    r = of.solve(np.zeros((0, 0)), reg=1.0)
    assert "has no entries" in r._repr_html_()
    assert Heat(np.zeros((2, 2)), "empty", (2, 2)).svg().count("<path") == 0


def test_points_are_joined_where_the_plan_is_heavy():
    x = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 1.0]])
    r = of.solve_sample(x, x[::-1] + 0.01, reg=0.001)
    lines = r.plot(x, x[::-1] + 0.01).collections[0]
    np.testing.assert_allclose(np.array(lines.get_segments()), np.stack([x, x + 0.01], 1))
    assert r.plot([0.0, 1.0, 2.0], [2.0, 1.0, 0.0]).get_yticks().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(x=np.zeros((2, 2))), "y is missing"),
        (dict(x=np.zeros((3, 2)), y=np.zeros((2, 2))), r"x must hold 2 points of 1 or 2 coordinates .* got shape \(3, 2\)"),
        (dict(x=np.zeros((2, 3)), y=np.zeros((2, 3))), r"x must hold 2 points of 1 or 2 coordinates .* got shape \(2, 3\)"),
        (dict(x=np.full((2, 2), np.nan), y=np.zeros((2, 2))), "x must be finite"),
        (dict(labels=(["a"], ["b", "c"])), "labels must be two lists, of 2 and 2 texts, got 1 and 2"),
        (dict(labels=5), "labels must be two lists, of 2 and 2 texts, got int"),
    ],
)
def test_bad_input_is_one_line(given, said, tmp_path):
    r = of.solve(np.eye(2), reg=0.1)
    for call in (
        lambda: r.plot(**given),
        lambda: r.save(tmp_path / "r.html", **given),
        lambda: r.save(tmp_path / "r.png", **given),
    ):
        with pytest.raises(ValueError, match=said) as error:
            call()
        assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_files_are_what_their_names_say(tmp_path):
    r = of.solve(np.eye(3), reg=0.1)
    for name, start in (("r.html", b"<!doctype html>"), ("r.PNG", b"\x89PNG"), ("r.svg", b"<?xml"), ("r.pdf", b"%PDF")):
        r.save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    with Image.open(tmp_path / "r.PNG") as image:
        assert min(image.size) > 300
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "/*" not in page
    assert not re.search(r"<script|https?://|<link", page)
    for name in ("r.npz", "r", "r.html.txt"):
        with pytest.raises(ValueError, match=r"path must end in \.html, \.htm, \.png, \.svg or \.pdf, got"):
            r.save(tmp_path / name)
    with pytest.raises(ValueError, match="cannot be written"):
        r.save(tmp_path / "no" / "r.html")
    assert len(list(tmp_path.iterdir())) == 4


def test_labels_are_escaped_everywhere():
    r = of.solve(np.eye(2), reg=0.1)
    html = r._card(labels=([EVIL, "b"], ["c", '"&'])).html()
    assert "<script" not in html
    assert "<script>alert" in " ".join(parsed(html).itertext())
    assert '"&' in " ".join(parsed(html).itertext())


def test_trained_modules_show_what_they_do(tmp_path):
    module = of.load_trained("sort-beyond")
    x = [0.9, 0.1, 0.5, 0.3]
    ax = module.plot(x, [0.25, 0.5, 0.75, 1.0])
    marked = ax.lines[0].get_xdata()
    assert [k - 1 for k in marked] == np.argsort(x).tolist()
    np.testing.assert_allclose(ax.images[0].get_array(), module(x, [0.25, 0.5, 0.75, 1.0]).numpy(), atol=1e-6)
    assert "449" in module._repr_html_()
    assert "100 % of 7 rows right" in printed(module)
    assert "Trained('sort-beyond'" in repr(module)
    clouds = of.load_trained("cloud-beyond")
    assert re.search(r"\d+ % of 7 rows right", clouds._repr_html_())
    for call, said in (
        (lambda: module.plot([1.0, 2.0]), "y is missing"),
        (lambda: module.plot(torch.rand(2, 3, 1), torch.rand(2, 3, 1)), "x must be one list of at most 32 points"),
        (lambda: module.plot(torch.rand(40), torch.rand(40)), "x must be one list of at most 32 points"),
        (lambda: module.save(tmp_path / "weights.safetensors"), r"path must end in \.html"),
    ):
        with pytest.raises(ValueError, match=said):
            call()
    assert not list(tmp_path.iterdir())


def test_showing_keeps_derivatives():
    C = torch.rand(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    r = of.solve(C, reg=0.1)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        r._repr_html_()
    r.plan[0, 0].backward()
    assert C.grad is not None
    assert float(C.grad.abs().sum()) > 0
