"""The author's scores on our models, beside his published curves (lab/author.py has his reading, data and filters).

The default draws what `python -m otformer.lab.experiments.author_scores` measured on WMT news (OTFORMER_DATA) and wrote to
data/author_scores.json; ``--full`` measures it again. Lemmas are simplemma's here, stanza's there; models are ours and much
smaller. So the comparison is of shapes; `otformer reproduce figure-5 --model …` compares numbers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from otformer import figures
from otformer.files import written
from otformer.lab.author import FIGURES, author_reading, compared
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.words.models.shipped import folder
from otformer.words.text.dictionary import muse
from otformer.words.text.text import news_pairs, sample

PAIRS = 1500  # sentence pairs drawn; the filters keep about half
MODELS = {"figure-5": "en-fr", "figure-6": "bert-en-fr", "figure-7": "bert-en-fr"}
RECORDED = Path(__file__).with_name("data") / "author_scores.json"
PANELS = {"figure-5": "Figure 5: translator", "figure-6": "Figure 6: BERT", "figure-7": "Figure 7: BERT's states"}
SCORES = {"cosine": "cosine with the identity", "share": "share matched by transport"}


def run(context: Context) -> Outcome:
    found = measured(context) if context.full else json.loads(RECORDED.read_text(encoding="utf-8"))
    rows: list[Row] = [
        {"figure": figure, "model": MODELS[figure], "pairs": one["pairs"], "chance": one["chance"]}
        | dict(zip(("layer", "ours", "low", "high", "published"), line, strict=True))
        for figure, one in found.items()
        for line in one["lines"]
    ]
    ours = {figure: np.array([line[1] for line in one["lines"]]) for figure, one in found.items()}
    his = {figure: np.array(each.values) for figure, each in FIGURES.items()}
    best = {figure: int(curve.argmax()) + (figure != "figure-7") for figure, curve in ours.items()}
    numbers: Numbers = {
        "pairs": [one["pairs"] for one in found.values()],
        "best": list(best.values()),
        "highest": [float(curve.max()) for curve in ours.values()],
        "last": [float(curve[-1]) for curve in ours.values()],
        "chance": [one["chance"] for one in found.values()],
        "correlation": [float(np.corrcoef(ours[figure], his[figure])[0, 1]) for figure in FIGURES],
        "his_fall": [float(his["figure-6"][3]), float(his["figure-6"][6])],
    }
    checks = {
        "above": all(bool((curve > found[figure]["chance"]).all()) for figure, curve in ours.items()),
        "ours_rise": bool((np.diff(ours["figure-5"]) > 0).all() or np.diff(ours["figure-6"]).min() > 0),
        "his_rise": bool((np.diff(his["figure-5"]) > 0).all() and (np.diff(his["figure-6"]) > 0).all()),
    }
    return Outcome(rows, _draw(found), numbers, checks, {"pairs": PAIRS, "lemmas": "simplemma"})


def measured(context: Context) -> dict[str, Any]:
    """Lines (layer, mean, low, high, published) of every figure, the pairs kept, and what chance gives."""
    pairs, dictionary = sample(news_pairs("en-fr"), PAIRS, context.seed), muse("en-fr")
    found: dict[str, Any] = {}
    for k, (figure, model) in enumerate(MODELS.items()):
        reading = author_reading(figure, str(folder(model)), dictionary, "simplemma", ("en", "fr"))
        kept = []
        for done, scores in enumerate(reading.scores(pairs), 1):
            kept += [] if scores is None else [scores]
            context.progress((k + done / len(pairs)) / len(MODELS))
        table = np.array(kept)
        lines = [line[:5] for line in compared(figure, table)]
        found[figure] = {"pairs": len(kept), "chance": float(table[:, -1].mean()), "lines": lines}
    return found


def _draw(found: dict[str, Any]) -> figures.Figure:
    fig, axes = figures.figure(11, 3.6, "abc")
    for panel, (figure, one) in zip("abc", found.items(), strict=True):
        layers, mean, low, high, _ = zip(*one["lines"], strict=True)
        published = FIGURES[figure].values
        axes[panel].plot(layers, mean, "o-", color=figures.BLUE, label=f"our {MODELS[figure]}, {one['pairs']:,} pairs")
        axes[panel].fill_between(layers, low, high, color=figures.BLUE, alpha=0.25, linewidth=0)
        his, name = range(layers[0], layers[0] + len(published)), FIGURES[figure].model.split("/")[-1]
        axes[panel].plot(his, published, "s--", color=figures.ORANGE, label=f"published, {name}")
        axes[panel].axhline(one["chance"], color=figures.GREY, linestyle=":", label="chance")
        axes[panel].set(xlabel="layer", ylabel=SCORES[FIGURES[figure].score], ylim=(0, 1), title=PANELS[figure])
        axes[panel].legend(loc="lower right", fontsize=7)
    return fig


def main() -> None:
    """Measure, and write what the experiment draws by default."""
    found = measured(Context(progress=lambda done: print(f"{done:.1%}", end="\r")))
    with written(RECORDED) as file:
        file.write(json.dumps(found, indent=1).encode())


if __name__ == "__main__":
    main()
