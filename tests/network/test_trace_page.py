"""The page, the card and the film of a trace: what they hold against POT and by hand, and what they refuse."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from PIL import Image

import otformer as of
from oracles import pot_plan, squared_cost, uniform
from otformer.network import goal as goals
from otformer.network import trace_film, trace_page
from otformer.network.goal import goal
from otformer.network.minimal_prompt import MinimalTransformer
from otformer.network.trace import Trace


def traced(n: int = 5, m: int = 7, depth: int = 30, dim: int = 2, **options) -> Trace:
    x, y = uniform(0, 2, max(n, m), dim)
    return of.AligningTransformer(dim, 0.1, depth)(x[:n], y[:m], warn=False, **options)


def embedded(path: Path) -> dict:
    """The data inside a trace page."""
    found = re.search(r"const data = (\{.*?\});\n", path.read_text(encoding="utf-8"))
    assert found
    return json.loads(found[1])


def numbers(packed: str, *shape: int, kind: str = "<f8") -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed), dtype=kind).reshape(shape)


@pytest.mark.parametrize(
    "make", [lambda: traced(), lambda: MinimalTransformer(2, 0.1, 30)(*uniform(1, 2, 5, 2), warn=False)]
)
def test_the_page_holds_what_attention_is_made_of(make, tmp_path):
    trace = make()
    trace.save(tmp_path / "trace.html")
    data = embedded(tmp_path / "trace.html")
    assert (data["layers"], data["reg"], data["batch"], data["kept"]) == (list(range(31)), [0.1] * 31, 1, 31)
    p = data["problems"][0]
    n, m = trace.shape
    assert (p["n"], p["m"]) == (n, m)
    K, u, v = numbers(p["K"], n, m), numbers(p["u"], 31, n), numbers(p["v"], 31, m)
    P = np.exp((u[:, :, None] + v[:, None] - K) / 0.1)
    for k in (0, 7, 30):
        assert np.abs(P[k] / P[k].sum(1, keepdims=True) - trace.attention(k).numpy()).max() < 1e-12
        assert np.abs((P[k] / P[k].sum(0)).T - trace.attention(k, "columns").numpy()).max() < 1e-12
        assert p["error"][k] == pytest.approx(float(trace.marginal_errors([k])[0]), rel=1e-6)


def test_the_goal_is_POTs_plan_and_the_distance_is_to_it(tmp_path):
    x, y = uniform(3, 6, 2), uniform(4, 4, 2)
    a = np.array([1.0, 2.0, 0.5, 0.0, 1.5, 1.0])
    trace = of.AligningTransformer(2, 0.05, 25)(x, y, a=a, warn=False)
    expected = pot_plan(squared_cost(x, y).numpy(), a, np.full(4, 1.5), 0.05)
    assert np.abs(goal(trace, 0).numpy() - expected).max() < 1e-5
    trace.save(tmp_path / "t.html")
    p = embedded(tmp_path / "t.html")["problems"][0]
    there = a > 0
    assert (p["n"], p["m"], p["at"][0]) == (5, 4, [0, 1, 2, 4, 5])
    assert np.abs(numbers(p["goal"], 5, 4, kind="<f4") - expected[there]).max() < 1e-5
    rows = expected[there] / expected[there].sum(1, keepdims=True)
    for k in (0, 25):
        by_hand = np.abs(trace.attention(k).numpy()[there] - rows).sum(1).mean() / 2
        assert p["distance"][k] == pytest.approx(by_hand, abs=1e-5)


def test_a_goal_of_ones_own_and_one_that_is_not_found(tmp_path, monkeypatch):
    trace = traced(4, 4)
    trace.save(tmp_path / "own.html", goal=np.eye(4))
    p = embedded(tmp_path / "own.html")["problems"][0]
    assert np.array_equal(numbers(p["goal"], 4, 4, kind="<f4"), np.eye(4))
    for bad in (np.eye(3), -np.eye(4), "plan"):
        with pytest.raises(ValueError, match="goal must be"):
            trace.save(tmp_path / "bad.html", goal=bad)
    monkeypatch.setattr(goals, "STEPS", 1)
    traced(4, 4, depth=2).save(tmp_path / "none.html")
    p = embedded(tmp_path / "none.html")["problems"][0]
    assert (p["goal"], p["distance"]) == (None, None)
    assert not (tmp_path / "bad.html").exists()


def test_points_are_drawn_where_they_are_points(tmp_path):
    x, y = uniform(0, 2, 3, 2)
    net = of.AligningTransformer(2, 0.1, 5)
    for given, drawn in (((x, y), True), ((of.cosine(x, y),), False), ((of.inner_product(x, y),), False)):
        net(*given, warn=False).save(tmp_path / "p.html")
        points = embedded(tmp_path / "p.html")["problems"][0]["points"]
        assert (points is not None) == drawn
        if drawn:
            np.testing.assert_allclose(points, torch.stack([x, y]).numpy(), rtol=1e-6)
    traced(dim=3).save(tmp_path / "p.html")
    assert embedded(tmp_path / "p.html")["problems"][0]["points"] is None


def test_registers_are_those_of_Z_and_wide_ones_are_left_out(tmp_path):
    trace = traced(3, 3, depth=4)
    trace.save(tmp_path / "t.html")
    data = embedded(tmp_path / "t.html")
    assert data["registers"] == list(trace.network.registers)
    flat = np.array([[c for register in token for c in register] for token in data["problems"][0]["Z"]])
    np.testing.assert_allclose(flat, trace.Z(0).numpy(), rtol=1e-6)
    traced(3, 3, depth=4, dim=5).save(tmp_path / "t.html")
    assert embedded(tmp_path / "t.html")["registers"][:2] == ["x_sq", "y_sq"]


def test_labels_are_escaped_and_wrong_ones_refused(tmp_path):
    trace = traced(2, 2, depth=3)
    labels = ["</script><script>alert(1)</script>", "b"], ["<!--", "d"]
    trace.save(tmp_path / "t.html", labels=labels)
    text = (tmp_path / "t.html").read_text(encoding="utf-8")
    assert text.count("</script>") == 1
    assert "<!--" not in text
    assert embedded(tmp_path / "t.html")["problems"][0]["labels"] == [*labels]
    wrong = (["a"], "list"), ((["a"], ["c", "d"]), "1 and 2"), ("ab", "str"), (("ab", "cd"), "str and str")
    for bad, said in wrong:
        with pytest.raises(ValueError, match=f"labels must be two lists, of 2 and 2 texts, got {said}$"):
            trace.save(tmp_path / "bad.html", labels=bad)
    x, y = uniform(0, 2, 3, 2, 2)
    batch = of.AligningTransformer(2, 0.1, 3)(x, y, warn=False)
    batch.save(tmp_path / "t.html", labels=[labels] * 3)
    assert embedded(tmp_path / "t.html")["problems"][2]["labels"] == [*labels]
    with pytest.raises(ValueError, match="labels must be a list of 3 pairs"):
        batch.save(tmp_path / "bad.html", labels=labels)
    assert not (tmp_path / "bad.html").exists()


def test_the_page_needs_no_network(tmp_path):
    traced().save(tmp_path / "trace.html")
    page = (tmp_path / "trace.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|<link|import\(|fetch\(|/\*[A-Z]+\*/", page)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.html"]


def test_a_ragged_batch_leaves_absent_points_out(tmp_path):
    x, y = [uniform(0, 3, 2), uniform(1, 6, 2)], [uniform(2, 4, 2), uniform(3, 6, 2)]
    net = of.AligningTransformer(2, 0.1, 20)
    net(x, y, warn=False).save(tmp_path / "batch.html")
    net(x[0], y[0], warn=False).save(tmp_path / "alone.html")
    batch, alone = embedded(tmp_path / "batch.html"), embedded(tmp_path / "alone.html")
    assert [(p["n"], p["m"]) for p in batch["problems"]] == [(3, 4), (6, 6)]
    one, other = batch["problems"][0], alone["problems"][0]
    assert np.abs(numbers(one["u"], 21, 3) - numbers(other["u"], 21, 3)).max() < 1e-12
    assert np.abs(numbers(one["K"], 3, 4) - numbers(other["K"], 3, 4)).max() < 1e-12
    assert len(one["tokens"]) == 4


def test_long_and_large_traces_show_fewer_layers_or_are_refused(tmp_path, monkeypatch):
    trace = traced()
    monkeypatch.setattr(trace_page, "LAYERS_SHOWN", 10)
    trace.save(tmp_path / "few.html")
    layers = embedded(tmp_path / "few.html")["layers"]
    assert layers == [0, 1, 3, 6, 9, 13, 18, 24, 30]  # ten places, of which two fall together
    assert len(numbers(embedded(tmp_path / "few.html")["problems"][0]["u"], -1, 5)) == 9
    monkeypatch.setattr(trace_page, "LARGEST_PAGE", 1400)  # 560 bytes of costs and plan, 128 a layer
    trace.save(tmp_path / "few.html")
    assert len(embedded(tmp_path / "few.html")["layers"]) == 6
    monkeypatch.setattr(trace_page, "LARGEST_PAGE", 800)
    with pytest.raises(ValueError, match=r"the costs and the plan of 5 × 7 pairs take"):
        trace.save(tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


@pytest.mark.parametrize("count", [2, 3, 10, 601])
def test_layers_are_left_out_only_where_there_are_too_many(count):
    for many in (1, 2, count - 1, count, count + 1, 3 * count):
        kept = list(range(0, 7 * many, 7))
        shown = trace_page.spread(kept, count)
        assert shown == kept if many <= count else set(shown) < set(kept)
        assert len(shown) <= count
        assert (shown[0], shown[-1]) == (kept[0], kept[-1])


def test_a_page_has_at_most_20_megabytes(tmp_path):
    with pytest.raises(ValueError, match=r"over 20 MB: the costs and the plan of 1200 × 1200 pairs take 23 MB"):
        traced(1200, 1200, depth=1).save(tmp_path / "large.html")


def test_a_missing_folder_is_one_clear_line(tmp_path):
    with pytest.raises(ValueError, match=r"missing.*cannot be written"):
        traced(depth=3).save(tmp_path / "missing" / "trace.html")


def test_a_trace_in_a_notebook_and_on_axes():
    trace = traced(40, 50, depth=12)
    html = trace._repr_html_()
    assert html.count("<svg") == 6  # four layers, the points, the error
    assert len(html) < 60_000
    ax = trace.plot(3, "columns")
    assert ax.get_title("left") == "layer 3"
    np.testing.assert_allclose(ax.images[0].get_array(), trace.attention(3, "columns").numpy(), atol=1e-12)
    with pytest.raises(ValueError, match="problem must be a whole number of at most 0, got 1"):
        trace.plot(problem=1)
    with pytest.raises(ValueError, match="head must be one of"):
        trace.plot(head="sideways")
    plt.close("all")


def test_a_large_trace_is_not_drawn(monkeypatch):
    monkeypatch.setattr("otformer.network.trace_card.LARGEST", 30)
    monkeypatch.setattr(Trace, "attention", lambda *_: pytest.fail("attention was formed"))
    trace = traced()
    assert "35 entries" in trace._repr_html_()
    with pytest.raises(ValueError, match="Trace cannot be drawn: attention has 35 entries"):
        trace.plot()


def test_a_film_has_its_frames_and_the_last_one_stays(tmp_path):
    trace = traced(3, 3, depth=40)
    trace.animate(tmp_path / "t.gif", frames=5, seconds=1)
    with Image.open(tmp_path / "t.gif") as film:
        times = []
        for k in range(film.n_frames):
            film.seek(k)
            times.append(film.info["duration"])
    assert times == [200] * 4 + [1500]
    assert [path.name for path in tmp_path.iterdir()] == ["t.gif"]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("t.avi", {}, r"path must end in \.gif or \.mp4"),
        ("t.gif", {"frames": 1}, "frames must be a whole number of at least 2"),
        ("t.gif", {"frames": 10**6}, "frames must be a whole number of at most 600"),
        ("t.gif", {"seconds": 0}, "seconds must be a positive"),
        ("t.gif", {"labels": (["a"], ["b"])}, "labels must be two lists, of 5 and 7"),
        ("no/t.gif", {"frames": 2}, "cannot be written"),
    ],
)
def test_films_that_are_refused(name, options, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        traced().animate(tmp_path / name, **options)
    with pytest.raises(ValueError, match='keep="all"'):
        traced(keep="last").animate(tmp_path / "t.gif")
    assert not list(tmp_path.iterdir())


FAKE = """import sys
from pathlib import Path
raw = sys.stdin.buffer.read()
wide, tall = map(int, sys.argv[sys.argv.index("-video_size") + 1].split("x"))
if len(raw) % (wide * tall * 3) or "-pix_fmt" not in sys.argv:
    sys.exit("odd frames")
Path(sys.argv[-1]).write_bytes(b"%d frames" % (len(raw) // (wide * tall * 3)))
"""


def test_an_mp4_goes_through_ffmpeg(tmp_path, monkeypatch):
    """There is no ffmpeg on the test machines: a stand-in counts the frames that it is sent."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert shutil.which("ffmpeg") is None
    with pytest.raises(ValueError, match=r"path must end in \.gif where ffmpeg is not installed"):
        traced(2, 2, 6).animate(tmp_path / "t.mp4")
    (tmp_path / "bin").mkdir()
    program, script = tmp_path / "bin" / "ffmpeg", tmp_path / "ffmpeg.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')  # a first line has no room for spaces
    program.chmod(0o755)
    script.write_text(FAKE)
    traced(2, 2, 6).animate(tmp_path / "t.mp4", frames=4, seconds=2)
    assert (tmp_path / "t.mp4").read_bytes() == b"%d frames" % (4 + round(trace_film.LAST * 2))
    script.write_text("import sys; sys.exit('no codec')")
    with pytest.raises(ValueError, match="ffmpeg says 'no codec'"):
        traced(2, 2, 6).animate(tmp_path / "again.mp4", frames=4)
    assert not (tmp_path / "again.mp4").exists()


def test_a_film_says_how_far_it_is(tmp_path):
    told = []
    traced(3, 3, depth=8).animate(tmp_path / "t.gif", frames=4, progress=told.append)
    assert told == [0.25, 0.5, 0.75, 1.0]
