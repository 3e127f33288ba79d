"""Counts and tables on the pages that the repository itself can tell are compared with it; errata: test_errata_list.py."""

from __future__ import annotations

import csv
import json
import re
from math import prod
from pathlib import Path

import pytest
from safetensors import safe_open

import otformer
from otformer.lab.experiments.recorded import FOLDER
from otformer.lab.experiments.registry import EXPERIMENTS

ROOT = Path(__file__).parents[1]
SHIPPED = Path(otformer.__file__).parent


def quoted(page: str, pattern: str) -> tuple[str, ...]:
    """The groups of a pattern, which stands on a page once."""
    (found,) = re.finditer(pattern, (ROOT / page).read_text("utf-8"))
    return found.groups()


def test_the_time_of_a_report_is_the_sum_of_its_experiments() -> None:
    (minutes,) = quoted("README.md", r"make report .* in about (\d+) minutes")
    assert int(minutes) == round(sum(each.seconds for each in EXPERIMENTS.values()) / 60)


def test_the_weights_that_ship() -> None:
    count, size = quoted("docs/results/learning.md", r"Shipped weights: (\d+) files, (\d+) kB")
    files = list((SHIPPED / "learning" / "weights").glob("*.safetensors"))
    assert int(count) == len(files)
    assert int(size) == pytest.approx(sum(file.stat().st_size for file in files) / 1000, abs=10)


def test_the_examples_that_ship() -> None:
    counts = quoted("docs/alignment.md", r"that ship with the package \((\d+) En–Fr, (\d+) De–En\)")
    files = (SHIPPED / "words" / "data" / f"{name}.tsv" for name in ("en-fr", "de-en"))
    assert [int(count) for count in counts] == [len(file.read_text("utf-8").splitlines()) for file in files]


def parameters(model: str, about: dict[str, int]) -> float:
    """Millions of parameters as transformers counts them: a Marian's positions are computed, not stored, on both sides."""
    with safe_open(SHIPPED / "words" / "weights" / model / "model.safetensors", "numpy") as file:
        stored = sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 (it is no dictionary)
    computed = 2 * about["max_position_embeddings"] * about["d_model"] if "d_model" in about else 0
    return (stored + computed) / 1e6


@pytest.mark.parametrize(
    ("model", "pattern", "fields"),
    [
        ("bert-en-fr", r"(\d+) layers, (\d+) heads, ([\d.]+) M parameters", ("num_hidden_layers", "num_attention_heads")),
        ("en-fr", r"(\d+) \+ \d+ layers, (\d+) heads, ([\d.]+) M parameters", ("encoder_layers", "encoder_attention_heads")),
    ],
)
def test_the_models_that_ship(model: str, pattern: str, fields: tuple[str, str]) -> None:
    layers, heads, millions = quoted("docs/results/translation.md", rf"`{model}`\D*{pattern}")
    about = json.loads((SHIPPED / "words" / "weights" / model / "config.json").read_text("utf-8"))
    assert (int(layers), int(heads)) == tuple(about[field] for field in fields)
    assert float(millions) == pytest.approx(parameters(model, about), abs=0.05)


@pytest.mark.parametrize(("row", "sentences"), [("fox", "the fox pair"), ("60 pairs", "60 shipped pairs")])
@pytest.mark.parametrize(("what", "column", "unit"), [("right, %", "right", 100), ("distance", "distance to the plan", 1)])
def test_the_table_of_figure_1_is_what_is_recorded(row: str, sentences: str, what: str, column: str, unit: int) -> None:
    (cells,) = quoted("docs/results/translation.md", rf"\n\| {row}: {what} \|(.*)\|\n")
    with (FOLDER / "fox.csv").open(newline="", encoding="utf-8") as lines:
        rows = [each for each in csv.DictReader(lines) if each["sentences"].startswith(sentences)]
    found = {(each["what"], each["layer"]): each[column] for each in rows}
    recorded = [found["target-source", str(layer)] for layer in range(1, 13)]
    printed = [float(cell.strip(" *")) for cell in cells.split("|")[:12]]
    assert printed == [pytest.approx(unit * float(number), abs=0.51 * unit / 100) for number in recorded]
