"""Colours are legible: by the contrast formula of WCAG 2."""

from __future__ import annotations

import pytest

from otformer.show import look


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_formula():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("ground", ["#FFFFFF", "#14171B"])  # a light notebook and a dark one
@pytest.mark.parametrize("colour", [look.HEAT, look.MARK, look.GOOD])
def test_what_is_drawn_in_a_notebook_is_seen_on_light_and_dark(colour, ground):
    assert contrast(colour, ground) >= 3


@pytest.mark.parametrize("theme", [look.LIGHT, look.DARK])
@pytest.mark.parametrize("name", ["ink", "soft", "u", "v"])
@pytest.mark.parametrize("ground", ["page", "card"])
def test_text_on_pages_is_legible(theme, name, ground):
    """4.5 : 1 is what small text needs."""
    assert contrast(theme[name], theme[ground]) >= 4.5
