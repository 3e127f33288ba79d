"""The GPU benchmark: our public functions on CUDA, beside flash-sinkhorn, GeomLoss with KeOps, mdot_tnt and curegot.

    PYTHONPATH=src python bench/gpu.py [--only SECTION …] [--minutes 8] [--tune-all]

Peers are used if they are installed or lie as plain folders in --peers (carry/peers); of one that is absent or fails, a row
says why. Every section runs in a process of its own, which is ended when its time is up; results are printed and, as they
come, written to gpu.jsonl in --out ($OUT or bench/results); at the end as tables, and to gpu.csv. --help lists the sections
and about how long each takes.

**Ours** is `of.solve_sample(x, y, a, b, reg=λ, tol=1e-4, executor="stream")` in float32, its value, potentials and converged
read. Times are of a second call, from points on the device to a result and an idle device; below 0.1 s the median of five
more calls stands beside them (``again``). A layer is a pass over the pairs; ``ratio`` is their time over ours.

**Errors** are L1 errors of both marginals, Σ_i |Σ_j P_ij − a_i| + Σ_j |Σ_i P_ij − b_j|, computed here in float64 from the
potentials a solver returned and the points it was given; over 4,096 rows and columns drawn at random where n > 50,000.
``read`` is what the solver itself says.

**flash-sinkhorn**'s alternating solver, run without TF32, has no stop by marginals: its iterations are counted first (its
own kernel, error read every ten), then its function is timed for that many; where counting took over 8 s, the time of the
counting stands, and after 20 s, or where its error stands still, it has not reached it. It tunes its kernels over dozens of
shapes, here over six of them unless --tune-all.

Without a GPU, ``--device cpu --shrink 100`` tries the sections on sizes a hundredth as large.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import gpu_keops
import torch
from gpu_common import Bench

from otformer.files import write_csv


class Section(NamedTuple):
    """``file`` has a function of the section's name that takes a `Bench`; about so many seconds, and at most."""

    file: str
    about: float
    limit: float
    what: str


SECTIONS = {  # what matters most comes first
    "table": Section("gpu_rows", 110, 240, "the families of bench/gpu_families.py, beside flash-sinkhorn"),
    "small": Section("gpu_rows", 15, 40, "1,000 to 5,000 points, and their limits"),
    "many": Section("gpu_rows", 95, 150, "128 and 512 dimensions, beside flash-sinkhorn"),
    "random": Section("gpu_random", 140, 190, "2,000 random problems: is `converged` true?"),
    "million": Section("gpu_rows", 40, 90, "beside flash-sinkhorn's multiscale mode"),
    "loss": Section("gpu_loss", 100, 180, "SamplesLoss with its gradient, beside GeomLoss on KeOps and flash-sinkhorn"),
    "own": Section("gpu_rows", 150, 240, "families of our own, written down before tuning"),
    "memory": Section("gpu_scale", 20, 60, "1,000,000 × 64 in how many GiB"),
    "dense": Section("gpu_dense", 40, 90, "cost matrices in float64, single and batched, beside mdot_tnt and curegot"),
    "unbalanced": Section("gpu_loss", 25, 80, "penalised marginals, beside flash-sinkhorn"),
    "hvp": Section("gpu_loss", 25, 80, "Hessian-vector products, beside flash-sinkhorn"),
    "sentences": Section("gpu_dense", 15, 60, "10,000 ragged problems in one call"),
    "scaling": Section("gpu_scale", 15, 60, "time and memory against n"),
    "passes": Section("gpu_scale", 15, 40, "one pass of the kernel: the one section of an internal call"),
}
PEERS = Path(__file__).resolve().parents[1] / "carry" / "peers"


def child(bench: Bench) -> None:
    """One section, in this process."""
    torch.backends.cuda.matmul.allow_tf32 = False
    getattr(importlib.import_module(SECTIONS[bench.section].file), bench.section)(bench)


def start(name: str, options: argparse.Namespace, limit: float, extra: dict[str, str]) -> None:
    """One section, in a process of its own."""
    command = [sys.executable, __file__, "--child", name, "--out", str(options.out), "--device", options.device]
    command += ["--shrink", str(options.shrink), "--seconds", str(min(options.seconds, limit - 30))]
    try:
        status = subprocess.run(
            command + ["--tune-all"] * options.tune_all, timeout=limit, env=os.environ | extra
        ).returncode
        print(f"{name}: exit status {status}\n" * (status != 0), end="", flush=True)
    except subprocess.TimeoutExpired:
        print(f"{name}: ended after {limit:.0f} s", flush=True)


def joined(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of one section and case as one row."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        found.setdefault((row["section"], row.get("case", "")), {}).update(row)
    return list(found.values())


def markdown(rows: list[dict[str, Any]]) -> str:
    """A section's rows as a table."""
    keys = [key for key in dict.fromkeys(key for row in rows for key in row) if key != "section"]
    lines = [[_shown(row.get(key, "")) for key in keys] for row in rows]
    table = [[key.replace("_", " ") for key in keys], ["---"] * len(keys), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in table)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def report(out: Path) -> None:
    rows = joined(json.loads(line) for line in (out / "gpu.jsonl").read_text().splitlines())
    if not rows:
        return
    columns = dict.fromkeys((key for row in rows for key in row), "")
    write_csv(out / "gpu.csv", [columns | row for row in rows])
    for name in dict.fromkeys(row["section"] for row in rows):
        print(f"\n**{name}**: {SECTIONS[name].what}\n\n" + markdown([row for row in rows if row["section"] == name]))


def arguments() -> argparse.Namespace:
    about = "\n".join(f"  {name:11} {s.about:4.0f} s  {s.what} ({s.file}.py)" for name, s in SECTIONS.items())
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"sections:\n{about}", formatter_class=style)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "bench/results")))
    parser.add_argument("--peers", type=Path, default=PEERS, help="a folder of packages")
    parser.add_argument("--minutes", type=float, default=8.0, help="end within this time")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--seconds", type=float, default=90.0, help="for the random problems")
    parser.add_argument("--tune-all", action="store_true", help="let flash-sinkhorn tune over all of its shapes")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--shrink", type=int, default=1, help="divide all sizes by this")
    parser.add_argument("--child", choices=SECTIONS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.child:
        child(Bench(options.child, options.out, options.device, options.shrink, options.tune_all, options.seconds))
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("bench/gpu.py needs a CUDA device; --device cpu --shrink 100 tries it without")
    end = time.monotonic() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu.jsonl").write_text("")
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"{name}, Python {sys.version.split()[0]}, torch {torch.__version__}", flush=True)
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(options.peers)]))
    with tempfile.TemporaryDirectory() as folder:
        keops = gpu_keops.environment(Path(folder))
        for section in options.only:
            limit = min(SECTIONS[section].limit, end - time.monotonic())
            if limit < 40:
                print(f"── {section}: no time left", flush=True)
                continue
            print(f"── {section}: about {SECTIONS[section].about:.0f} s, at most {limit:.0f} s", flush=True)
            start(section, options, limit, {"PYTHONPATH": paths} | (keops if section == "loss" else {}))
    report(options.out)


if __name__ == "__main__":
    main()
