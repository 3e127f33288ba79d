"""What otformer and its peers do with the same bad input: the table of docs/trust.md.

    python bench/trust_peers.py                              what this Python has
    python bench/trust_peers.py --python PEERS/bin/python    the peers of another environment, otformer of this one

Every trial is a process of its own, with yes on standard input. A library that is not installed says so.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np

PEERS = ("POT", "ott-jax", "geomloss", "transformer-lens", "circuitsvis", "bertviz", "simalign", "transformers")
LIMIT = 600  # seconds for a trial, imports included
SRC = Path(__file__).parents[1] / "src"
MODEL = SRC / "otformer/words/weights/bert-en-fr"
WORD = "<script>alert(1)</script>"
NAN = np.array([[0.0, np.nan], [1.0, 0.0]])
HALF = np.array([0.5, 0.5])
rng = np.random.default_rng(0)
X, Y = rng.random((30, 2)), rng.random((30, 2))
COST = ((X[:, None] - Y[None]) ** 2).sum(-1)
W = np.full(30, 1 / 30)
SPARSE = np.append(np.full(15, 1 / 15), np.zeros(15))


def judged(P: Any, a: np.ndarray, b: np.ndarray, says: str = "") -> str:
    """What a plan is, by its marginals."""
    P = np.asarray(P, float)
    if not np.isfinite(P).all():
        return f"{'NaN' if np.isnan(P).any() else 'inf'} in the plan{says}"
    error = np.abs(P.sum(1) - a).sum() + np.abs(P.sum(0) - b).sum()
    return f"a plan, marginal error {error:.0e}{says}"


def otformer_plan(M: np.ndarray, a: np.ndarray, b: np.ndarray, reg: float) -> str:
    import otformer as of

    result = of.solve(M, a, b, reg=reg)
    return judged(result.plan, a, b, ", says converged" if result.converged else ", says not converged")


def pot_plan(M: np.ndarray, a: np.ndarray, b: np.ndarray, reg: float, method: str = "sinkhorn") -> str:
    import ot

    return judged(ot.sinkhorn(a, b, M, reg, method=method), a, b)


def ott_plan(M: np.ndarray, a: np.ndarray, b: np.ndarray, reg: float) -> str:
    import jax

    jax.config.update("jax_enable_x64", True)
    from ott.geometry.geometry import Geometry
    from ott.solvers import linear

    out = linear.solve(Geometry(cost_matrix=jax.numpy.asarray(M), epsilon=reg), jax.numpy.asarray(a), jax.numpy.asarray(b))
    return judged(out.matrix, a, b, ", says converged" if bool(out.converged) else ", says not converged")


def loss_of(library: str) -> Callable[..., str]:
    """The loss of otformer or geomloss, which have one name and one meaning for it."""

    def value(M: np.ndarray, a: np.ndarray, b: np.ndarray, reg: float) -> str:
        import torch

        points = (X, Y) if len(a) == len(X) else (np.array([[0.0], [np.nan]]), np.zeros((2, 1)))
        x, y, a, b = (torch.tensor(t) for t in (*points, a, b))
        loss = import_module(library).SamplesLoss("sinkhorn", p=2, blur=float(np.sqrt(reg)))
        return f"loss {float(loss(a, x, b, y)):.6g}"

    return value


def plain_loss(M: np.ndarray, a: np.ndarray, b: np.ndarray, reg: float) -> str:
    """The debiased loss by 20,000 Sinkhorn steps in the log domain, of points with mass: what is right at large λ."""

    def transport(x: np.ndarray, a: np.ndarray, y: np.ndarray, b: np.ndarray) -> float:
        K, log_a, log_b = -((x[:, None] - y[None]) ** 2).sum(-1) / 2 / reg, np.log(a), np.log(b)
        g = np.zeros(len(b))
        for _ in range(20_000):
            f = -np.log(np.exp(K + g + log_b).sum(1))
            g = -np.log(np.exp(K + f[:, None] + log_a[:, None]).sum(0))
        return float(reg * (a @ f + b @ g))

    x, y, a, b = X[a > 0], Y[b > 0], a[a > 0], b[b > 0]
    return f"loss {transport(x, a, y, b) - transport(x, a, x, a) / 2 - transport(y, b, y, b) / 2:.6g}"


def exact_value(M: np.ndarray, a: np.ndarray, b: np.ndarray, reg: float) -> str:
    import ot

    return f"value {ot.emd2(a, b, M) / 2:.6g}, the limit of the loss for λ → 0"


class Ran:
    """Pickled, it makes a file when it is read."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)


def after(marker: Path, said: str) -> str:
    return "THE CODE RAN" if marker.exists() else f"no code ran; {said}"


def pickled(read: Callable[[Path], str]) -> str:
    """What reading a file of a pickled object says, and whether the object's code ran."""
    with tempfile.TemporaryDirectory() as folder:
        marker, file = Path(folder, "ran"), Path(folder, "x.npy")
        np.save(file, np.array([Ran(str(marker))], object), allow_pickle=True)
        try:
            said = read(file)
        except ValueError as error:
            said = f"ValueError: {error}"
        return after(marker, said.replace(folder, "…"))


def _command(arguments: list[str]) -> str:
    """What the command line says, on standard error."""
    call = [sys.executable, "-m", "otformer.cli", *arguments]
    done = subprocess.run(call, input="y\n" * 9, capture_output=True, text=True, timeout=LIMIT, check=False)
    return f"exit {done.returncode}: {(done.stderr or done.stdout).strip()}"


def otformer_page() -> str:
    import otformer as of

    with tempfile.TemporaryDirectory() as folder:
        of.words.show(MODEL, [f"{WORD} cat ||| {WORD} chat"]).save(Path(folder, "p.html"))
        return in_page(Path(folder, "p.html").read_text("utf-8"))


def in_page(text: str) -> str:
    return "the word is in the page AS IT IS" if WORD in text else "the word is in the page escaped"


def circuitsvis_page() -> str:
    import torch
    from circuitsvis.attention import attention_patterns

    return in_page(str(attention_patterns([WORD, "cat"], torch.ones(1, 2, 2) / 2)))


def bertviz_page() -> str:
    import torch
    from bertviz import head_view

    page = head_view((torch.ones(1, 1, 2, 2) / 2,), [WORD, "cat"], html_action="return")
    return in_page(page.data)


def evil(folder: str) -> tuple[Path, Path]:
    """A model's folder whose configuration names classes in a file beside it; that file leaves a mark."""
    model, marker = Path(folder, "evil"), Path(folder, "ran")
    shutil.copytree(MODEL, model, copy_function=shutil.copyfile)
    for file in ("config.json", "tokenizer_config.json"):
        settings = json.loads((model / file).read_text())
        classes = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Model", "AutoTokenizer": ["evil.Words", "evil.Words"]}
        classes["AutoModelForCausalLM"] = "evil.Model"
        settings |= {"model_type": "evil", "auto_map": classes, "tokenizer_class": "Words"}
        (model / file).write_text(json.dumps(settings))
    (model / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    return model, marker


def tried(load: Callable[[str], Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        model, marker = evil(folder)
        try:
            said = str(load(str(model)))
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        return after(marker, said.replace(folder, "…"))


def simalign_model() -> str:
    from simalign import SentenceAligner

    return tried(lambda model: SentenceAligner(model=model))


def lens_bridge() -> str:
    from transformer_lens.model_bridge import TransformerBridge

    return tried(lambda model: TransformerBridge.boot_transformers(model))


PLANS: dict[str, Callable[..., str]] = {
    "otformer.solve": otformer_plan,
    "POT ot.sinkhorn": pot_plan,
    "POT, method sinkhorn_log": partial(pot_plan, method="sinkhorn_log"),
    "OTT-JAX linear.solve": ott_plan,
    "otformer.SamplesLoss": loss_of("otformer"),
    "GeomLoss SamplesLoss": loss_of("geomloss"),
}
TRIALS: dict[str, dict[str, Callable[[], str]]] = {
    "NaN in the cost (GeomLoss: in a point)": {name: lambda f=f: f(NAN, HALF, HALF, 0.1) for name, f in PLANS.items()},
    "half of the weights are 0, λ = 0.01": {
        name: lambda f=f: f(COST, SPARSE, W, 0.01)
        for name, f in {**PLANS, "20,000 plain Sinkhorn steps": plain_loss}.items()
    },
    "λ = 1e-6, costs to 1": {
        name: lambda f=f: f(COST, W, W, 1e-6) for name, f in {**PLANS, "POT ot.emd2, half of it": exact_value}.items()
    },
    "an npy file that holds a pickle": {
        "otformer solve": lambda: pickled(lambda file: _command(["solve", str(file), str(file)])),
        "numpy.load, for those that read no files": lambda: pickled(lambda file: str(np.load(file))),
        "numpy.load(allow_pickle=True)": lambda: pickled(lambda file: f"read {np.load(file, allow_pickle=True).shape}"),
    },
    f"the token `{WORD}` on a page": {
        "otformer.words.show": otformer_page,
        "circuitsvis, TransformerLens's pages": circuitsvis_page,
        "bertviz head_view": bertviz_page,
    },
    "a model's folder with code, yes on standard input": {
        "otformer probe": lambda: tried(lambda model: _command(["probe", model, "a ||| b", "--languages", "en-fr"])),
        "SimAlign SentenceAligner": simalign_model,
        "TransformerLens TransformerBridge": lens_bridge,
    },
}


def one(question: str, library: str) -> str:
    """A trial in this process: what it returned, raised, and the first warning."""
    with warnings.catch_warnings(record=True) as told, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            said = TRIALS[question][library]()
        except ImportError as error:
            return f"not installed ({error.name or error})"
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
    about = [str(each.message).strip().splitlines()[0] for each in told if each.category in (UserWarning, RuntimeWarning)]
    return said + (f"; warns: {about[0]}" if about else "")


def versions() -> str:
    """The peers of this Python."""
    installed = {name: metadata.version(name) for name in PEERS if any(metadata.Distribution.discover(name=name))}
    return ", ".join(f"{name} {installed.get(name, 'not installed')}" for name in PEERS)


def process(python: str, question: str, library: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(SRC), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    call = [python, __file__, "--question", question, "--library", library]
    try:
        done = subprocess.run(
            call, input="y\n" * 9, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {LIMIT} s"
    return (
        done.stdout.strip().splitlines()[-1]
        if done.returncode == 0 and done.stdout.strip()
        else f"ended with {done.returncode}"
    )


def main() -> None:
    parser = argparse.ArgumentParser("trust_peers")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the peers")
    parser.add_argument("--question", choices=TRIALS)
    parser.add_argument("--library")
    given = parser.parse_args()
    if given.library:
        print(one(given.question, given.library) if given.question else versions())
        return
    print("| input | library | what comes |\n|---|---|---|")
    for question in [given.question] if given.question else TRIALS:
        for library in TRIALS[question]:
            python = sys.executable if library.startswith("otformer") else given.python
            said = process(python, question, library).replace("|", "\\|")[:220]
            print(f"| {question} | {library} | {said} |", flush=True)
    print("\n" + subprocess.run([given.python, __file__, "--library", "all"], capture_output=True, text=True).stdout.strip())


if __name__ == "__main__":
    main()
