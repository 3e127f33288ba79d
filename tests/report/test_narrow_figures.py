"""The second layout of a figure, for a phone."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from PIL import Image

from otformer import figures


def drawn(layout: str = "abcd;eeee") -> figures.Figure:
    """Four matrices with a scale, below them a curve with a long title, and a legend beside it all."""
    fig, axes = figures.figure(10, 5.4, layout)
    for panel in "abcd":
        image = figures.heatmap(axes[panel], np.eye(9), "A at layer 300")
    figures.colours(fig, image, axes["d"])
    axes["e"].plot([1, 2], label="a curve")
    axes["e"].set(xlabel="layer", ylabel="error", title="A title that is far too long for one line of a narrow panel")
    fig.legend(loc="outside right center")
    return fig


def test_panels_stand_below_each_other_matrices_in_pairs_and_nothing_is_cut_off() -> None:
    with figures.applied(), warnings.catch_warnings():
        warnings.simplefilter("error")  # a layout that collapses is a warning of matplotlib's
        fig = figures.narrowed(drawn())
        fig.draw_without_rendering()
        boxes = [axes.get_window_extent() for axes in fig.axes[:5]]
        inside = fig.get_tightbbox().bounds
    a, b, c, d, e = boxes
    assert a.y0 == pytest.approx(b.y0, abs=2)
    assert c.y0 == pytest.approx(d.y0, abs=2)
    assert a.y0 > c.y1 > c.y0 > e.y1
    assert a.x1 < b.x0
    assert fig.axes[4].get_title(loc="left").count("\n") == 1
    wide, high = fig.get_size_inches()
    assert wide == figures.NARROW
    assert inside[0] >= 0 <= inside[1]
    assert inside[0] + inside[2] <= wide + 0.01
    assert inside[1] + inside[3] <= high + 0.01


def test_the_legend_goes_below_and_letters_keep_their_size() -> None:
    with figures.applied():
        fig = figures.narrowed(drawn())
        fig.draw_without_rendering()
        (legend,) = fig.legends
        assert [text.get_text() for text in legend.get_texts()] == ["a curve"]
        assert legend.get_window_extent().y1 < fig.axes[4].get_window_extent().y0
        assert fig.axes[4].xaxis.label.get_size() == 9


def test_long_names_of_rows_are_broken_and_hidden_ones_shown() -> None:
    with figures.applied():
        fig, (left, right) = figures.figure(10, 3, 1, 2)
        for axes in (left, right):
            figures.named_rows(axes, ["a name of a row that is longer than a phone is wide", "b"])
        right.tick_params(labelleft=False)
        figures.narrowed(fig).draw_without_rendering()
        labels = [axes.get_yticklabels()[0] for axes in (left, right)]
    assert all("\n" in label.get_text() and label.get_visible() for label in labels)


def test_an_empty_cell_takes_no_room() -> None:
    with figures.applied():
        fig, (left, right) = figures.figure(10, 3, 1, 2)
        left.plot([1, 2])
        right.set_axis_off()
        assert figures.narrowed(fig).get_size_inches()[1] == pytest.approx(3)


def test_the_same_figure_gives_the_same_narrow_picture() -> None:
    pictures = []
    for _ in range(2):
        stream = io.BytesIO()
        with figures.applied():
            figures.narrowed(drawn()).savefig(stream, format="png", metadata={"Software": None})
        pictures.append(stream.getvalue())
    assert pictures[0] == pictures[1]
    assert Image.open(io.BytesIO(pictures[0])).width == round(160 * figures.NARROW)
