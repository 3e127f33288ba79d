"""The proofs in proofs/: Coq accepts them and refuses false variants; their numbers hold in another interval arithmetic.

Without Coq the tests that need it are skipped, and `make test` lists them; what is left is that the files are those that
were checked, and the numbers.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from mpmath import iv, mpf

from needs import missing

FOLDER = Path(__file__).parents[2] / "proofs"
spec = importlib.util.spec_from_file_location("check", FOLDER / "check.py")
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)


def test_the_files_are_those_that_coq_has_checked() -> None:
    recorded = check.RECORD.read_text("utf-8").splitlines()
    assert recorded[1 : 1 + len(check.THEOREMS)] == check.digests()
    assert {file.stem for file in FOLDER.glob("*.v")} == set(check.THEOREMS)
    assert {line.strip() for line in recorded if line.startswith("  ")} == set(check.theorems())


def statements(file: str, kinds: str) -> set[str]:
    return set(re.findall(rf"^(?:{kinds}) (\w+)", (FOLDER / f"{file}.v").read_text("utf-8"), flags=re.MULTILINE))


@pytest.mark.parametrize("file", check.THEOREMS)
def test_every_theorem_is_asked_for_its_axioms_and_is_in_the_readme(file) -> None:
    named = set(check.THEOREMS[file])
    assert statements(file, "Theorem|Corollary") <= named <= statements(file, "Theorem|Corollary|Lemma")
    assert set(check.NUMERIC.get(file, ())) <= named
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert [name for name in (f"{file}.v", *sorted(named)) if f"`{name}`" not in readme] == []


def test_nothing_is_assumed_or_left_out_in_the_files() -> None:
    """Variables and hypotheses stand in sections only, where they become premises of the theorems."""
    for file in FOLDER.glob("*.v"):
        text = re.sub(r"\(\*.*?\*\)", "", file.read_text("utf-8"), flags=re.DOTALL)
        assert not re.search(r"\b(Admitted|admit|Axioms?|Parameters?|Conjecture|Abort)\b", text), file.name
        outside = re.sub(r"^Section (\w+)\..*?^End \1\.", "", text, flags=re.DOTALL | re.MULTILINE)
        assert not re.search(r"\b(Variables?|Hypothes[ie]s|Context)\b", outside), file.name


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    """All files, accepted by Coq. What needs it is skipped where there is no Coq."""
    if check.missing():
        pytest.skip(missing("coq"))
    return shutil.copytree(check.compiled(), tmp_path_factory.mktemp("proofs") / "compiled")


@pytest.mark.slow
def test_coq_accepts_the_proofs_from_the_axioms_of_the_reals(compiled) -> None:
    numeric = check.theorems(check.NUMERIC)
    assert check.axioms(compiled, [name for name in check.theorems() if name not in numeric]) == check.REALS


@pytest.mark.slow
def test_a_lemma_without_proof_is_found(compiled, tmp_path) -> None:
    place = shutil.copytree(compiled, tmp_path / "variant")
    source = place / "TheoremA.v"
    text, found = re.subn(r"(?s)(Lemma solve_two.*?Proof\.).*?Qed\.", r"\1 Admitted.", source.read_text("utf-8"))
    assert found == 1
    source.write_text(text, "utf-8")
    check.compile_file(place, "TheoremA")
    with pytest.raises(check.Rejected, match=r"solve_two"):
        check.rests_on(place, ["TheoremA.theorem_A"], numbers=False)


VARIANTS = {
    f"{file}.{where}: {name}": (file, where, change)
    for file, statements in tomllib.loads(Path(__file__).with_name("false_proofs.toml").read_text("utf-8")).items()
    for where, changes in statements.items()
    for name, change in changes.items()
}

# How Coq says that a step does not prove what it should.
REASONS = r"Tactic failure|Unable to unify|No applicable tactic"


def until(text: str, where: str) -> str:
    """A file up to the end of the proof of a statement, with the sections closed that are open there."""
    begin = re.search(rf"^(?:Lemma|Theorem|Corollary) {where}\b", text, flags=re.MULTILINE).start()
    text = text[: text.index("Qed.", begin) + len("Qed.")]
    sections: list[str] = []
    for word, name in re.findall(r"^(Section|End) (\w+)\.", text, flags=re.MULTILINE):
        sections.append(name) if word == "Section" else sections.remove(name)
    return "\n".join([text, *(f"End {name}." for name in reversed(sections)), ""])


def statement_at(text: str, line: int) -> str:
    """The lemma or theorem in whose statement or proof a line lies."""
    before = "\n".join(text.splitlines()[:line])
    return re.findall(r"^(?:Lemma|Theorem|Corollary) (\w+)", before, flags=re.MULTILINE)[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_coq_rejects_a_false_variant_and_accepts_a_true_one(compiled, tmp_path, name) -> None:
    file, where, change = VARIANTS[name]
    source = until((compiled / f"{file}.v").read_text("utf-8"), where)
    assert change["old"] in source
    place = shutil.copytree(compiled, tmp_path / "variant")
    if "true" in change:
        (place / f"{file}.v").write_text(source.replace(change["old"], change["true"]), "utf-8")
        check.compile_file(place, file)
    text = source.replace(change["old"], change["false"])
    (place / f"{file}.v").write_text(text, "utf-8")
    with pytest.raises(check.Rejected, match=REASONS) as error:
        check.compile_file(place, file)
    assert statement_at(text, int(re.search(r"line (\d+)", str(error.value)).group(1))) == where


def test_every_theorem_has_a_false_variant() -> None:
    assert set(check.theorems()) - {f"{file}.{where}" for file, where, _ in VARIANTS.values()} == set()


# The numbers once more, without Coq. gain(ω, t) = (1 + t)(1 − e^{−2ωt}) − 2ωt(1 − t); c_ω is the largest c with
# gain(ω, t) ≥ 2ct² on [−1, 1].


def gain(omega, t):
    return (1 + t) * (1 - iv.exp(-2 * omega * t)) - 2 * omega * t * (1 - t)


def slope(omega, t):
    """The derivative of the gain by t."""
    return 1 - 2 * omega + 4 * omega * t + iv.exp(-2 * omega * t) * (2 * omega * (1 + t) - 1)


def at_least(omega, c, low: float, high: float, depth: int = 40) -> bool:
    """gain(ω, t) − 2ct² ≥ 0 on [low, high]: bisection, with the value at the middle and the derivative on the interval."""
    box, middle = iv.mpf([low, high]), iv.mpf((mpf(low) + mpf(high)) / 2)
    value = gain(omega, middle) - 2 * c * middle**2
    if value.b < 0 or depth == 0:
        return False
    if (value + (slope(omega, box) - 4 * c * box) * (box - middle)).a >= 0:
        return True
    cut = float(middle.mid)
    return at_least(omega, c, low, cut, depth - 1) and at_least(omega, c, cut, high, depth - 1)


def at_least_near_zero(omega, c, low: float, high: float, depth: int = 16) -> bool:
    """The same near 0, divided by t². With s = −2ωt, |s| ≤ 1, Taylor gives e^s ≤ 1 + s + s²k(s), because e/720 < 1/240."""
    t = iv.mpf([low, high])
    s = -2 * omega * t
    assert s.a >= -1
    assert s.b <= 1
    k = iv.mpf(1) / 2 + s / 6 + s**2 / 24 + s**3 / 120 + s**4 / 240
    rest = 4 * omega - 4 * omega**2 * (1 + t) * k - 2 * c
    if rest.a >= 0:
        return True
    if rest.b < 0 or depth == 0:
        return False
    cut = (low + high) / 2
    return at_least_near_zero(omega, c, low, cut, depth - 1) and at_least_near_zero(omega, c, cut, high, depth - 1)


def holds(omega: str, c: str) -> bool:
    w, d = iv.mpf(omega), iv.mpf(c)
    return at_least_near_zero(w, d, -0.125, 0.125) and at_least(w, d, -1.0, -0.125) and at_least(w, d, 0.125, 1.0)


@pytest.mark.parametrize(
    ("omega", "below", "above"),
    [
        ("1.884013", "0", "0.000003"),  # ω_c is above
        ("1", "0.864664", "0.864665"),  # 1 − e⁻² = 0.8646647…, at t = 1
        ("1.5", "0.749", "0.751"),  # 3/4, at t = 0, where this bisection is coarse; Coq has it exactly
        ("1.8", "0.237355", "0.237356"),
    ],
)
def test_constants_in_another_interval_arithmetic(omega, below, above) -> None:
    assert holds(omega, below)
    assert not holds(omega, above)


def test_the_dual_rises_above_the_largest_omega() -> None:
    t = iv.mpf("-0.359565")
    assert gain(iv.mpf("1.884014"), t).b < 0
    assert not holds("1.884014", "0")
