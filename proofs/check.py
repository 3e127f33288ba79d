"""Checks the proofs in this folder with Coq: `make proofs`, or `python proofs/check.py [--record] [--if-installed]`.

Every file is compiled (build/proofs keeps what was, until a source, Coq or this file changes), then Coq is asked on which
axioms the theorems rest. An axiom that is not one of the real numbers or of machine integers (an `Admitted` lemma is one)
is an error; so is a coqc that is stopped, takes too long or does not run. Where Coq is not installed the theorems that were
not checked are printed. `--record` writes what was checked, by which version, to checked.txt, so that a machine without Coq
can tell whether the files are still those.

A new file needs one line in THEOREMS, with every `Theorem` and `Corollary` in it, a line in NUMERIC for each of these that
uses the interval tactic, and a row in README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
RECORD = HERE / "checked.txt"
BUILD = HERE.parent / "build" / "proofs"  # what Coq has compiled
PACKAGES = "coq libcoq-coquelicot libcoq-interval"  # Debian's names

LIMIT = 600  # seconds for one file; each takes a few

# In the order of their dependencies; of each file all that it calls a theorem or a corollary.
THEOREMS = {
    "Tanh": ("tanh_identity",),
    "Layer": (),
    "NonExpansive": ("layer_non_expansive", "errors_add", "longer_step_expands"),
    "Descent": ("h_gain", "gain_concave"),
    "Constants": (
        "fall_by_the_residual",
        "c_below",
        "c_1_884013",
        "dual_falls",
        "dual_falls_to_1_8",
        "dual_rises",
        "c_1",
        "c_1_5",
        "c_1_8",
        "c_omega",
    ),
    "Birkhoff": ("birkhoff",),
    "TheoremA": ("theorem_A", "theorem_A_for_bounded_costs"),
    "Dual": (
        "change_of_the_dual",
        "rows_head_lowers_by_the_residual",
        "cols_head_lowers_by_the_residual",
        "both_heads_lower_by_the_residual",
        "rows_head_lowers_the_dual",
        "both_heads_lower_the_dual",
    ),
    "HilbertRate": ("hilbert_rate", "hilbert_never_grows"),
    "HilbertRuns": (
        "rounding_floor",
        "rate_over_layers",
        "never_above_the_start",
        "depth_logarithmic",
        "pair_of_heads",
        "pair_contracts_short",
        "rate_over_pairs",
        "factor_below_one",
        "longer_steps_never_grow",
    ),
    "Divergence": (
        "pinsker_entry",
        "pinsker",
        "divergence_is_the_excess",
        "gradient_bounds_the_excess",
        "divergence_by_the_heads",
        "divergence_at_a_layer",
        "plan_against_the_cost",
    ),
    "Summation": (
        "summation",
        "one_over_k",
        "residual_by_the_gradient",
        "descent_by_the_gradient",
        "descent_per_layer",
        "descent_per_pair",
        "depth_one_over_epsilon_alternating",
        "depth_one_over_epsilon",
        "gradient_of_the_best_layer",
    ),
    "TwoPoint": (
        "error_of_a_state",
        "error_at_one_lambda",
        "error_after_k_layers",
        "depth_at_one_lambda",
        "error_with_alternating_heads",
    ),
    "Sinkhorn": ("error_of_sinkhorn_above", "error_of_sinkhorn_below"),
    "Annealing": (
        "solution_for_every_lambda",
        "slow_never_grows",
        "slow_stay_within",
        "hot_layer_divides_by_twelve",
    ),
    "AnnealingHot": ("slow_falls_by_twelve",),
}

# Those whose inequalities between numbers come from the interval library. All others rest on the axioms of the reals alone.
NUMERIC = {
    "Constants": ("c_1_884013", "dual_falls", "dual_falls_to_1_8", "dual_rises", "c_1", "c_1_5", "c_1_8", "c_omega"),
    "Dual": ("rows_head_lowers_the_dual", "both_heads_lower_the_dual"),
    "AnnealingHot": ("slow_falls_by_twelve",),
}

REALS = {
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}
MACHINE_INTEGERS = ("Uint63.", "PrimInt63.")  # Coq's primitive 63-bit integers and what is assumed of them


class Rejected(Exception):
    """Coq does not accept a file, or a theorem rests on an axiom that is not allowed."""


class Failed(Exception):
    """coqc itself did not work, so nothing is known of the proofs."""


def coqc(*arguments: str, place: Path = HERE) -> str:
    """What coqc prints; Rejected if it finds an error, Failed if it does not come to that."""
    try:
        done = subprocess.run(["coqc", *arguments], cwd=place, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"coqc {arguments[-1]} took more than {LIMIT} s") from error
    except OSError as error:
        raise Failed(f"coqc does not start: {error}") from error
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr or done.stdout).strip()
    if done.returncode == 1 and re.search(r"^Error:", said, flags=re.MULTILINE):
        raise Rejected(said)
    raise Failed(f"coqc {arguments[-1]} ended with {done.returncode}: {said or 'no message'}")


def compile_file(place: Path, name: str) -> str:
    """What coqc says to name.v in place, where the files it needs are compiled already."""
    return coqc("-q", "-w", "none", "-Q", ".", "OTformer", f"{name}.v", place=place)


def missing() -> str | None:
    """What is not installed on this machine that the proofs need, or None if all is there."""
    if shutil.which("coqc") is None:
        return f"coqc is not installed (Debian: apt-get install {PACKAGES})"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Libraries.v").write_text("From Coquelicot Require Coquelicot.\nFrom Interval Require Tactic.\n")
        try:
            compile_file(Path(folder), "Libraries")
        except Rejected as error:
            if not re.search(r"Cannot find a physical path|Unable to locate library", str(error)):
                raise Failed(f"coqc cannot load its libraries: {error}") from error
            return f"coqc has not the libraries Coquelicot and Interval (Debian: apt-get install {PACKAGES})"
    return None


def theorems(group: dict[str, tuple[str, ...]] = THEOREMS) -> list[str]:
    """The theorems of some files, with the names of these: ["Tanh.tanh_identity", …]."""
    return [f"{file}.{theorem}" for file, names in group.items() for theorem in names]


def compiled() -> Path:
    """A folder with the sources, compiled: that of an earlier success with the same sources, Coq and this file, if any."""
    made_from = "\n".join([version(), *digests(), hashlib.sha256(Path(__file__).read_bytes()).hexdigest()])
    place = BUILD / hashlib.sha256(made_from.encode()).hexdigest()[:16]
    if place.exists():
        return place
    BUILD.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=BUILD))
    try:
        for name in THEOREMS:
            shutil.copy(HERE / f"{name}.v", folder)
            compile_file(folder, name)
        with contextlib.suppress(OSError):  # another process may have been first
            folder.rename(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return place


def version() -> str:
    """The version of Coq."""
    return coqc("--print-version").split()[0]


def axioms(place: Path, names: list[str]) -> set[str]:
    """The axioms under some theorems of the compiled files in place."""
    files = dict.fromkeys(name.split(".")[0] for name in names)
    ask = f"From OTformer Require {' '.join(files)}.\nDefinition theorems := ({', '.join(names)}).\n"
    Path(place, "Ask.v").write_text(ask + "Print Assumptions theorems.\n")
    return set(re.findall(r"^([\w.']+)\s*:", compile_file(place, "Ask"), flags=re.MULTILINE)) - {"Axioms"}


def rests_on(place: Path, names: list[str], numbers: bool) -> list[str]:
    """The axioms of some theorems, then these, a line for each; an error if there is an axiom that is not allowed."""
    found = axioms(place, names)
    integers = {name for name in found if name.startswith(MACHINE_INTEGERS)}
    if other := found - REALS - (integers if numbers else set()):
        raise Rejected(f"{', '.join(names)} rest on {', '.join(sorted(other))}")
    also = f" and {len(integers)} on machine integers ({', '.join(sorted(integers))})" if integers else ""
    return [f"From {', '.join(sorted(found & REALS))}{also}:", *(f"  {name}" for name in names)]


def digests() -> list[str]:
    return [f"{hashlib.sha256((HERE / f'{name}.v').read_bytes()).hexdigest()}  {name}.v" for name in THEOREMS]


def check() -> list[str]:
    """Checks everything; the lines of checked.txt."""
    place, numeric = compiled(), theorems(NUMERIC)
    pure = [name for name in theorems() if name not in numeric]
    with tempfile.TemporaryDirectory() as folder:
        asked = shutil.copytree(place, Path(folder, "proofs"))
        rests = [*rests_on(asked, pure, False), *rests_on(asked, numeric, True)]
    return [f"Coq {version()}", *digests(), *rests]


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the proofs with Coq.")
    parser.add_argument("--record", action="store_true", help="write checked.txt")
    parser.add_argument("--if-installed", action="store_true", help="without Coq, say so and succeed")
    options = parser.parse_args()
    try:
        if why := missing():
            print(f"proofs: NOT CHECKED here: {why}\nThese {len(theorems())} theorems were not checked:")
            print("\n".join(f"  {name}" for name in theorems()))
            return 0 if options.if_installed else 1
        lines = check()
    except Rejected as error:
        print(f"proofs: REJECTED\n{error}")
        return 1
    except Failed as error:
        print(f"proofs: FAILED, and not checked\n{error}")
        return 1
    print("\n".join(lines))
    if options.record:
        RECORD.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
