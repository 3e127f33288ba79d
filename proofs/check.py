"""Checks the proofs in this folder with Coq: `make proofs`, or `python proofs/check.py [--record] [--if-installed]`.

Every file is compiled (build/proofs keeps what was, until a source, Coq or this file changes), then Coq is asked on which
axioms each theorem rests. An axiom that is not one of the real numbers or of machine integers (an `Admitted` lemma is one)
is an error. `--record` writes what was checked, by which version, to checked.txt, so that a machine without Coq can tell
whether the files are still those.
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
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
RECORD = HERE / "checked.txt"
BUILD = HERE.parent / "build" / "proofs"  # what Coq has compiled
PACKAGES = "coq libcoq-coquelicot libcoq-interval"  # Debian's names

# In the order of their dependencies; of each file the theorems that README.md speaks of.
THEOREMS = {
    "Tanh": ("tanh_identity",),
    "Layer": (),
    "NonExpansive": ("layer_non_expansive", "errors_add", "longer_step_expands"),
    "Descent": ("h_gain", "gain_concave"),
    "Constants": ("dual_falls", "dual_rises", "fall_by_the_residual", "c_1", "c_1_5", "c_1_8", "c_below"),
    "Birkhoff": ("birkhoff",),
    "TheoremA": ("theorem_A", "theorem_A_for_bounded_costs"),
    "Dual": ("change_of_the_dual", "rows_head_lowers_the_dual", "both_heads_lower_the_dual"),
}

PURE = ("Tanh", "NonExpansive", "Birkhoff", "TheoremA")
NUMERIC = ("Descent", "Constants", "Dual")  # their inequalities between numbers come from the interval library

REALS = {
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}
MACHINE_INTEGERS = ("Uint63.", "PrimInt63.")  # Coq's primitive 63-bit integers and what is assumed of them


class Rejected(Exception):
    """Coq does not accept a file, or a theorem rests on an axiom that is not allowed."""


def compile_file(place: Path, name: str) -> str:
    """What coqc says to name.v in place, where the files it needs are compiled already."""
    call = ["coqc", "-q", "-w", "none", "-Q", ".", "OTformer", f"{name}.v"]
    done = subprocess.run(call, cwd=place, capture_output=True, text=True)
    if done.returncode:
        raise Rejected(done.stderr.strip())
    return done.stdout


def missing() -> str | None:
    """Why the proofs cannot be checked on this machine, or None if they can."""
    if shutil.which("coqc") is None:
        return f"coqc is not installed (Debian: apt-get install {PACKAGES})"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Libraries.v").write_text("From Coquelicot Require Coquelicot.\nFrom Interval Require Tactic.\n")
        try:
            compile_file(Path(folder), "Libraries")
        except Rejected:
            return f"coqc has not the libraries Coquelicot and Interval (Debian: apt-get install {PACKAGES})"
    return None


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
    return subprocess.run(["coqc", "--print-version"], capture_output=True, text=True, check=True).stdout.split()[0]


def axioms(place: Path, files: Iterable[str]) -> set[str]:
    """The axioms under the theorems of some of the compiled files in place."""
    theorems = ", ".join(f"{file}.{theorem}" for file in files for theorem in THEOREMS[file])
    ask = f"From OTformer Require {' '.join(THEOREMS)}.\nDefinition theorems := ({theorems}).\nPrint Assumptions theorems.\n"
    Path(place, "Ask.v").write_text(ask)
    return set(re.findall(r"^([\w.']+)\s*:", compile_file(place, "Ask"), flags=re.MULTILINE)) - {"Axioms"}


def rests_on(place: Path, files: Iterable[str], numbers: bool) -> str:
    """A line on the axioms of some files; an error if there is one that is not allowed."""
    found = axioms(place, files)
    integers = {name for name in found if name.startswith(MACHINE_INTEGERS)}
    if other := found - REALS - (integers if numbers else set()):
        raise Rejected(f"{', '.join(files)} rest on {', '.join(sorted(other))}")
    also = f", {len(integers)} on machine integers" if integers else ""
    return f"{', '.join(files)} rest on {', '.join(sorted(found & REALS))}{also}"


def digests() -> list[str]:
    return [f"{hashlib.sha256((HERE / f'{name}.v').read_bytes()).hexdigest()}  {name}.v" for name in THEOREMS]


def check() -> list[str]:
    """Checks everything; the lines of checked.txt."""
    place = compiled()
    with tempfile.TemporaryDirectory() as folder:
        asked = shutil.copytree(place, Path(folder, "proofs"))
        rests = [rests_on(asked, PURE, False), rests_on(asked, NUMERIC, True)]
    return [f"Coq {version()}", *digests(), *rests]


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the proofs with Coq.")
    parser.add_argument("--record", action="store_true", help="write checked.txt")
    parser.add_argument("--if-installed", action="store_true", help="without Coq, say so and succeed")
    options = parser.parse_args()
    if why := missing():
        print(f"proofs: NOT CHECKED here: {why}")
        return 0 if options.if_installed else 1
    try:
        lines = check()
    except Rejected as error:
        print(f"proofs: REJECTED\n{error}")
        return 1
    print("\n".join(lines))
    if options.record:
        RECORD.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
