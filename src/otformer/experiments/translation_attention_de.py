"""Figure 6 of the paper: the same for German–English (experiments/translation_attention.py)."""

from __future__ import annotations

from otformer.experiments import translation_attention
from otformer.experiments.experiment import Context, Experiment, Outcome


def run(context: Context) -> Outcome:
    return translation_attention.measured(context, "de-en", "translation-attention-de")


EXPERIMENT = Experiment(
    name="translation-attention-de",
    title="Cross-attention finds translated words, German–English",
    source="paper, section 4.1 and figure 6",
    claim="The same improvement with depth for German–English, even stronger: attention in the final layer aligns over 80 % "
    "of the translated pairs.",
    run=run,
    needs="words",
)
