"""The explorer's JavaScript, run by Node, beside the package: network, schedules, switches, matching, trained networks."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from needs import missing
from otformer import AligningTransformer
from otformer.lab.explorer_data import DATA, learned
from otformer.learning.trained import load_trained
from otformer.network.printed import printed_columns, printed_rows
from otformer.network.schedule import Paper
from otformer.network.weights import HEADS, head
from otformer.transport.reference import plan, sinkhorn
from otformer.words.align.vectors import read_vectors
from otformer.words.text.examples import examples
from otformer.words.text.text import words

JS = Path(__file__).parents[2] / "src" / "otformer" / "explorer" / "js"
NODE = shutil.which("node")
pytestmark = pytest.mark.slow
needs_node = pytest.mark.skipif(NODE is None, reason=missing("node"))
SCHEDULES = ("paper", "gradient", "alternating", "relaxed", "annealed")
EDITS = ("y:blank", "one2:times:-1.5,u:plus:0.25", "sign:plus:0.5", "x:copy:y,y_sq:copy:x_sq", "one3:blank,one1:plus:-2")
SWITCHED = ("sign", "sink", "index", "identity", "head", "squares")
SWITCHES = ({}, *({name: True} for name in SWITCHED), {"step": 4}, *({"edits": text} for text in EDITS))
ASKED = ("networks", "matchings", "learned", "sentences", "vectors", "hashes", "written", "names")
DEPTH, SHOWN = 40, (0, 1, 2, 17, 40)


def node(folder: Path, **given) -> dict:
    """What the modules answer; they are copied beside a package.json that calls them modules."""
    shutil.copytree(JS, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    script = Path(__file__).with_name("run_math.mjs")
    asked = json.dumps({name: given.get(name, []) for name in ASKED})
    done = subprocess.run([NODE, script, folder], input=asked, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def problems(count: int) -> list[dict]:
    """Random networks and points: all schedules, sinks and switches, n ≠ m for some, d from 1 to 3."""
    rng = np.random.default_rng(15)
    found = []
    for k, (schedule, broken) in enumerate(islice(zip(cycle(SCHEDULES), cycle(SWITCHES), strict=False), count)):
        n = int(rng.integers(1, 15))
        m = n if k % 3 or broken else int(rng.integers(1, 15))
        dim = 1 if "identity" in broken else int(rng.integers(1, 4))
        x, y = rng.uniform(-0.2, 1.2, (n, dim)), rng.uniform(-0.2, 1.2, (m, dim))
        sink = "token" if k % 4 == 1 else "frozen"
        setting = {"depth": DEPTH, "schedule": schedule, "sink": sink, "broken": broken, "layers": SHOWN}
        found.append({"x": x.tolist(), "y": y.tolist(), "reg": float(10 ** rng.uniform(-2, 0)), **setting})
    return found


def network(given: dict) -> AligningTransformer:
    """The same network of the package, with what is broken in it done to its weights."""
    n, dim, broken, reg = len(given["x"]), len(given["x"][0]), given["broken"], given["reg"]
    schedule = Paper(n) if given["schedule"] == "paper" else given["schedule"]
    sink = "token" if broken.get("sink") else given["sink"]
    net = AligningTransformer(dim, reg, DEPTH, schedule, sink, marginals=n != len(given["y"]))
    r = net.registers
    if broken.get("index") or broken.get("identity"):
        each = []
        for here in net.reg.tolist():
            P = [head(name, here, r).bilinear(r) for name in HEADS]
            P = [printed_rows(dim, here), P[1]] if broken.get("index") else [P[0], printed_columns(dim, here)]
            each.append(torch.stack(P))
        net.W_Q, net.W_K = torch.stack(each), torch.eye(r.width, dtype=torch.float64).expand(len(each), 2, -1, -1)
    net.W_O = net.W_O * (-1 if broken.get("sign") else 1) * broken.get("step", 1)
    if broken.get("head"):
        net.W_O[:, 1] = 0
    return net


def trace(given: dict):
    """The run of the package's network on the package's prompt, both broken and edited in the same way."""
    net = network(given)
    prompt = net.prompt(given["x"], given["y"])
    if given["broken"].get("squares"):
        prompt = prompt.blank("x_sq", "y_sq")
    for edit in filter(None, given["broken"].get("edits", "").split(",")):
        name, operation, *more = edit.split(":")
        verbs = {"blank": prompt.blank, "times": prompt.scale, "plus": prompt.add, "copy": prompt.copy}
        prompt = verbs[operation](name, *(more if operation == "copy" else map(float, more)))
    return net(prompt, warn=False)


@needs_node
def test_u_v_and_attention_are_those_of_the_aligning_transformer(tmp_path):
    given = problems(65)
    assert {(each["schedule"], *each["broken"]) for each in given} >= {(s, *b) for s in SCHEDULES for b in SWITCHES}
    for problem, answer in zip(given, node(tmp_path, networks=given)["networks"], strict=True):
        ran = trace(problem)
        for layer, found in zip(SHOWN, answer, strict=True):
            u, v = ran.potentials(layer)
            wanted = {"u": u, "v": v, "rows": ran.attention(layer), "columns": ran.attention(layer, "columns")}
            wanted |= {"sink": ran.attention(layer, sink=True)}
            for name, value in wanted.items():
                np.testing.assert_allclose(found[name], value.flatten(), rtol=0, atol=1e-9, err_msg=f"{name} of {problem}")
            if found["error"] is not None:  # JSON has no infinity
                error = float(ran.marginal_errors([layer])[0])
                assert float(found["error"]) == pytest.approx(error, rel=1e-9, abs=1e-9)


@needs_node
def test_the_line_called_sinkhorn_is_sinkhorn(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 9, 2))
    given = {"x": x.tolist(), "y": y.tolist(), "reg": 0.1, "depth": 400, "schedule": "sinkhorn", "layers": [400]}
    ((found,),) = node(tmp_path, networks=[given | {"sink": "frozen", "broken": {}}])["networks"]
    C = torch.tensor(cdist(x, y, "sqeuclidean"))
    P = plan(C, *sinkhorn(C, 0.1), 0.1)
    np.testing.assert_allclose(found["rows"], (P / P.sum(1, keepdim=True)).flatten(), atol=1e-8)


@needs_node
def test_the_outlined_matching_is_scipys(tmp_path):
    rng = np.random.default_rng(1)
    given = [dict(zip("xy", rng.random((2, n, 2)).tolist(), strict=True)) for n in (1, 2, 3, 7, 30, 200)]
    for problem, found in zip(given, node(tmp_path, matchings=given)["matchings"], strict=True):
        C = cdist(problem["x"], problem["y"], "sqeuclidean")
        rows, columns = linear_sum_assignment(C)
        assert sorted(found) == list(range(len(C)))
        assert C[rows, found].sum() == pytest.approx(C[rows, columns].sum(), rel=1e-12)


@needs_node
@pytest.mark.parametrize("name", ["sort-beyond", "paper-attention"])
def test_the_trained_networks_are_the_packages_layer_by_layer(name, tmp_path):
    rng = np.random.default_rng(2)
    spread = {n: rng.permutation(np.linspace(0.1, 0.9, n) + 0.05 * rng.random(n)) for n in (2, 7, 12, 30)}
    lists = [(x, (np.arange(n) + 1) / n) for n, x in spread.items()]
    lists.append((np.array([30.0, -10.0, 20.0]), np.array([1.0, 2.0, 3.0])))  # mapped to [1/n, 1] first
    given = [{"stored": learned(name), "x": x.tolist(), "y": y.tolist()} for x, y in lists]
    module = load_trained(name).double().requires_grad_(False)
    answers = node(tmp_path, learned=given)["learned"]
    for (x, y), found in zip(lists, answers, strict=True):
        np.testing.assert_allclose(found[-1], module(x, y).flatten(), rtol=0, atol=1e-9)
    for (x, y), found in zip(lists[:-1], answers[:-1], strict=True):
        states = module.net.states(*(torch.tensor(t)[None, :, None] for t in (x, y)))
        for Z, layer in zip(states, found, strict=True):
            np.testing.assert_allclose(layer, module.net.output(Z).attention[0, 0].flatten(), rtol=0, atol=1e-9)


@needs_node
def test_typed_sentences_are_split_as_the_package_splits_them(tmp_path):
    given = [" ".join(side) for example in examples("en-fr") for side in example[:2]]
    given += ["L'homme n’est pas là.", "“Quoi?!”", "It's 7.45 or 3,000,5… Don't O'Brien", "Peux-tu m'aider, s'il te plaît?"]
    assert node(tmp_path, sentences=given)["sentences"] == [words(each) for each in given]


@needs_node
@pytest.mark.parametrize(("language", "side"), [("en", 0), ("fr", 1)])
def test_vectors_of_the_examples_are_the_packages_but_for_8_bits(language, side, tmp_path):
    stored = json.loads(DATA.read_text("utf-8"))["vocabulary"][language]
    given = sorted({word for example in examples("en-fr") for word in example[side]} | {"XylophoneZ"})
    (found,) = node(tmp_path, vectors=[{"stored": stored, "words": given}])["vectors"]
    wanted = read_vectors(files("otformer.words").joinpath("data", "vectors.en-fr.npz"), language).embed(given)
    for word, answer, vector in zip(given, found, wanted, strict=True):
        assert answer["known"] == (word != "XylophoneZ")
        if answer["known"]:
            assert np.dot(answer["vector"], vector) > 0.999, word
        assert np.linalg.norm(answer["vector"]) == pytest.approx(1)


@needs_node
def test_every_preset_survives_its_link(tmp_path):
    for state, link, read in node(tmp_path)["links"]:
        assert read == {"state": state, "wrong": []}
        assert link == "" or link.startswith("#")


@needs_node
def test_only_decimal_numbers_are_points_of_a_link(tmp_path):
    bad = ["#edits=z:blank", "#edits=x:copy:u", "#edits=y:times:0x1", "#edits=y:halve", "#edits=y:plus:1000"]
    bad += ["#x=,&y=0,1", "#x=0x1,1&y=0,1", "#x=0,1&y=0:,1:", "#n=0x10", "#list=0x10%201", "#reg=%20", "#x=Infinity,0&y=0,1"]
    good = ["#edits=y:times:.5,u:plus:-1,x:copy:y,one1:blank", "#x=.5,-1.&y=0,1e-1", "#n=10", "#list=1e3%20+2"]
    found = node(tmp_path, hashes=bad + good)["hashes"]
    for link, answer in zip(bad + good, found, strict=True):
        assert bool(answer["wrong"]) == (link in bad), link
    assert all((answer["state"]["x"], answer["state"]["n"]) == ("", 12) for answer in found[: len(bad)])


@needs_node
def test_half_a_surrogate_pair_does_not_break_the_link(tmp_path):
    written = node(tmp_path, written=["a \ud83e fox", "a \U0001f98a"])["written"]
    assert written == ["#source=a%20%EF%BF%BD%20fox", "#source=a%20%F0%9F%A6%8A"]


@needs_node
def test_different_numbers_have_different_names(tmp_path):
    names = {"1000001 1000002 1000003": ["1000001", "1000002", "1000003"], "3 1 3": ["3", "1", "3"]}
    names |= {"0.123456 0.123457 0.5": ["0.123456", "0.123457", "0.5"], "0.123456 0.2": ["0.1235", "0.2"]}
    assert node(tmp_path, names=list(names))["names"] == list(names.values())
