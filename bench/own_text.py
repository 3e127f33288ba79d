"""Word aligners trained on one's own text, side by side on the same words:

    python bench/own_text.py --data OWN --fast-align fast_align/build/fast_align --out bench/results/own_text.csv

OWN has folders NAME/ with train.src, train.tgt, test.src, test.tgt (words with spaces between them) and test.gold (links
from 0, ``i-j`` sure, ``ipj`` possible); bench/own_text_data.py makes some. NAME begins with the languages, ja-en or so. Of
every folder each system is trained on the first 5,000, 20,000, 100,000, … pairs and then aligns the test pairs, which are
not in that text; with ``--sees`` they are, without links, as aligners of this kind are usually run. Peers have their own
default settings and the best rule of seven, chosen *on the gold*; ours is what `otformer align --train` and `--model` do,
with no choice. eflomal's way with unseen pairs, priors, is to learn from all of them together while it aligns them.

The seconds are those of training and aligning, by the clock and of the processor. A row that stands in the CSV is not
measured again. A peer that is not installed is named and left out.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import aligners_eflomal as eflomal
from aligners_systems import RULES, merge
from aligners_text import Set

from otformer.files import write_csv
from otformer.words.align.hmm.word_parts import WordParts
from otformer.words.text.gold import Gold, Links, parse_links, read_gold, score_links
from otformer.words.text.training_text import TokenPair

SIZES = (5_000, 20_000, 100_000, 300_000)
Both = list[tuple[Links, Links]]  # forward and reverse links of every test pair


class Task(NamedTuple):
    """Text to train on and sentences to align, as words."""

    name: str
    text: list[TokenPair]
    test: list[TokenPair]
    gold: list[Gold]


@dataclass(frozen=True)
class Row:
    """One system by one rule on one text, rates in per cent; low and high are the 95 % bootstrap interval of the AER."""

    set: str
    pairs: int
    system: str
    sees: str
    rule: str
    best: str
    aer: float
    low: float
    high: float
    precision: float
    recall: float
    f1: float
    seconds: float
    cpu: float


def read_sides(folder: Path, name: str) -> list[TokenPair]:
    sides = [(folder / f"{name}.{side}").read_text(encoding="utf-8").split("\n")[:-1] for side in ("src", "tgt")]
    return [(e.split(), f.split()) for e, f in zip(*sides, strict=True)]


def read_task(folder: Path) -> Task:
    return Task(folder.name, read_sides(folder, "train"), read_sides(folder, "test"), read_gold(folder / "test.gold"))


# Systems: from a task and whether the test is part of its text to links in both directions, or to final ones by a name


def with_eflomal(task: Task, sees: bool) -> Both:
    """eflomal, model 3 and its defaults; unseen sentences are aligned under the priors that it learned."""

    def whole(words: Sequence[str]) -> WordParts:
        return WordParts(list(words), list(range(len(words))))

    sides = ([whole(pair[k]) for pair in task.test] for k in (0, 1))
    test = Set(task.name, [(list(e), list(f)) for e, f in task.test], *sides, task.gold)
    return (eflomal.with_text if sees else eflomal.with_priors)(task.text, [test])[0]


def with_fast_align(program: Path, task: Task, sees: bool) -> Both:
    """fast_align with the options of its README; unseen sentences are aligned with the parameters that it learned."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, pairs in (("text", [*task.text, *(task.test if sees else [])]), ("test", task.test)):
            lines = (f"{' '.join(e)} ||| {' '.join(f)}\n" for e, f in pairs if e and f)
            (folder / file).write_text("".join(lines), encoding="utf-8")
        found = [_fast_align(program, folder, way, len(task.test), sees) for way in ([], ["-r"])]
    return list(zip(*found, strict=True))


def _fast_align(program: Path, folder: Path, way: list[str], tested: int, sees: bool) -> list[Links]:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(program), *way, "-d", *options], check=True, capture_output=True, text=True)

    table = str(folder / "table")
    trained = run("-o", "-v", "-i", str(folder / "text"), *([] if sees else ["-p", table]))
    if sees:
        return [parse_links(line).sure for line in trained.stdout.splitlines()[-tested:]]
    said = {
        key: line.split()[-1] for line in trained.stderr.splitlines() for key in ("target length", "tension:") if key in line
    }
    options = ["-f", table, "-T", said["tension:"], "-m", said["target length"], "-i", str(folder / "test")]
    return [parse_links(line.split("|||")[2]).sure for line in run(*options).stdout.splitlines()]


def with_ours(options: Sequence[str], task: Task, sees: bool) -> list[Links]:
    """What a user runs."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, pairs in (("text", [*task.text, *(task.test if sees else [])]), ("test", task.test)):
            for k, side in enumerate(("src", "tgt")):
                (folder / f"{file}.{side}").write_text("".join(f"{' '.join(pair[k])}\n" for pair in pairs), encoding="utf-8")

        def align(*given: str | Path) -> str:
            command = [sys.executable, "-m", "otformer", "align", *map(str, given)]
            return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

        model = folder / "model"
        languages = "-".join(task.name.split("-")[:2])
        said = "--languages", languages, "--by", "spaces", "--out", model
        align("--train", folder / "text.src", folder / "text.tgt", *said, *options)
        return [
            parse_links(line).sure for line in align("--model", model, folder / "test.src", folder / "test.tgt").splitlines()
        ]


def by_rules(both: Both) -> dict[str, list[Links]]:
    """One direction alone, or both made one by every rule."""
    alone = {"forward": [a for a, _ in both], "reverse": [b for _, b in both]}
    return alone | {rule: [merge(a, b, rule) for a, b in both] for rule in RULES}


def measure(task: Task, name: str, sees: bool, run: Callable[[], dict[str, list[Links]]]) -> list[Row]:
    """A row of every rule."""
    start, used = time.perf_counter(), cpu_seconds()
    answers = run()
    seconds, cpu = round(time.perf_counter() - start, 1), round(cpu_seconds() - used, 1)
    scores = {rule: score_links(found, task.gold) for rule, found in answers.items()}
    best = min(scores, key=lambda rule: scores[rule].aer)
    rows = []
    for rule, score in scores.items():
        rates = (score.aer, *score.interval(), score.precision, score.recall, score.f1)
        percent = [round(100 * rate, 1) for rate in rates]
        known = ("yes" if sees else "no", rule, "best" if rule == best else "")
        rows.append(Row(task.name, len(task.text), name, *known, *percent, seconds, cpu))
    return rows


def cpu_seconds() -> float:
    """Of this process and of those it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def systems(given: argparse.Namespace) -> Iterator[tuple[str, Callable[[Task, bool], dict[str, list[Links]]]]]:
    if "fast_align" in given.systems:
        if given.fast_align is None:
            print("fast_align: no --fast-align, left out", file=sys.stderr)
        else:
            yield "fast_align", lambda task, sees: by_rules(with_fast_align(given.fast_align, task, sees))
    if "eflomal" in given.systems:
        if (why := eflomal.missing()) is not None:
            print(f"eflomal: {why}, left out", file=sys.stderr)
        else:
            yield "eflomal", lambda task, sees: by_rules(with_eflomal(task, sees))
    if "otformer" in given.systems:
        yield given.name, lambda task, sees: {"its own": with_ours(given.options, task, sees)}


def read_rows(file: Path) -> list[Row]:
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as stream:
        kinds: dict[str, Callable[[str], object]] = {"str": str, "int": int, "float": float}
        fields = Row.__dataclass_fields__
        return [Row(**{k: kinds[str(fields[k].type)](v) for k, v in line.items()}) for line in csv.DictReader(stream)]


def table(rows: Sequence[Row]) -> list[str]:
    """A Markdown table of the best rules."""
    lines = ["set | pairs | system | sees text | rule | AER | precision | recall | F1 | seconds | CPU seconds"]
    lines.append(" | ".join(["---", "---:", *["---"] * 3, *["---:"] * 6]))
    for r in rows:
        if r.best:
            aer = f"{r.aer} ({r.low}–{r.high})"
            values = (r.set, f"{r.pairs:,}", r.system, r.sees, r.rule, aer, r.precision, r.recall, r.f1, r.seconds, r.cpu)
            lines.append(" | ".join(map(str, values)))
    return [f"| {line} |" for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the folders of texts")
    parser.add_argument("--only", nargs="+", help="names of texts")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, help="pairs of text; those above its size are all of it"
    )
    parser.add_argument("--systems", nargs="+", default=["fast_align", "eflomal", "otformer"])
    parser.add_argument("--fast-align", type=Path, help="the program, built from clab/fast_align")
    parser.add_argument("--sees", action="store_true", help="the test sentences are part of the text")
    parser.add_argument("--options", nargs="*", default=[], help="further options of otformer align --train")
    parser.add_argument("--name", default="otformer", help="what ours is called, with other options")
    parser.add_argument("--out", type=Path, default=Path("bench/results/own_text.csv"))
    given = parser.parse_args()
    rows = read_rows(given.out)
    done = {(r.set, r.pairs, r.system, r.sees) for r in rows}
    names = given.only or sorted(folder.parent.name for folder in given.data.glob("*/test.gold"))
    for whole in (read_task(given.data / name) for name in names):
        for size in sorted({min(size, len(whole.text)) for size in given.sizes}):
            task = whole._replace(text=whole.text[:size])
            for name, run in systems(given):
                key = (task.name, size, name, "yes" if given.sees else "no")
                if key not in done:
                    made = measure(task, name, given.sees, lambda run=run, task=task: run(task, given.sees))  # type: ignore[misc]
                    rows += made
                    given.out.parent.mkdir(parents=True, exist_ok=True)
                    write_csv(given.out, [asdict(row) for row in rows])
                    print(table(made)[-1], flush=True)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
