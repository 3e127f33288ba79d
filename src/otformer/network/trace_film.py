"""A trace as a film: a GIF, drawn by matplotlib and packed by Pillow, or an MP4 where ffmpeg is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from otformer import checks, figures
from otformer.files import written
from otformer.network.trace_card import LARGEST, heat, lines, points_of, spread
from otformer.show.curve import Curve
from otformer.show.heat import checked_labels
from otformer.show.look import MARK

if TYPE_CHECKING:
    from PIL.Image import Image

    from otformer.network.trace import Trace

MOST_FRAMES = 600
LAST = 1.5  # seconds that the last frame stays
DOTS = 100  # per inch
COLOURS = 64  # of a GIF


def write_film(
    trace: Trace,
    path: str | Path,
    seconds: float,
    frames: int,
    labels: Any,
    problem: Any,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Write the film, whole or not at all; ``progress`` is told the fraction of frames that are drawn."""
    file = checks.path("path", path, ".gif", ".mp4")
    if file.suffix.lower() == ".mp4" and shutil.which("ffmpeg") is None:
        raise checks.ArgumentError("path", "end in .gif where ffmpeg is not installed", repr(str(path)))
    checks.count("frames", frames, least=2, most=MOST_FRAMES)
    k = checks.count("problem", problem, least=0, most=len(trace.prompt.a) - 1)
    seconds, (n, m) = checks.positive("seconds", seconds), trace.shape[-2:]
    if len(trace) < 2:
        raise ValueError('animate needs layers to show, got a trace of the last alone: run the network with keep="all"')
    if n * m > LARGEST:
        raise ValueError(f"animate draws plans of at most {LARGEST} entries, got {n} × {m}")
    texts, layers = checked_labels(labels, (n, m)), spread(trace.layers, frames)
    with figures.applied():
        images = _frames(trace, layers, k, texts, progress or (lambda fraction: None))
    pause = seconds / len(images)
    with written(file) as out:
        if file.suffix.lower() == ".gif":
            first, *rest = (image.quantize(COLOURS) for image in images)
            times = [*[round(1000 * pause)] * len(rest), round(1000 * LAST)]
            first.save(out, format="GIF", save_all=True, append_images=rest, duration=times, loop=0)
        else:
            out.write(_mp4(images, 1 / pause))


@torch.no_grad()
def _frames(trace: Trace, layers: list[int], k: int, labels: Any, tell: Callable[[float], None]) -> list[Image]:
    """One picture a layer: attention, and beside it the points or the marginal error so far."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    points, images = points_of(trace, k), []
    errors = [float(trace.marginal_errors([layer]).reshape(-1)[k]) for layer in layers]
    made, (left, right) = figures.figure(6.4, 3.4, columns=2)
    made.set_dpi(DOTS)
    made.set_layout_engine("constrained", h_pad=0.08, w_pad=0.08)
    canvas = FigureCanvasAgg(made)
    for at, layer in enumerate(layers):
        left.clear()
        right.clear()
        heat(trace, layer, "rows", k, labels).draw(left)
        left.set_title(f"layer {layer} of {trace.depth}")
        if points is None:
            Curve(layers, errors, "marginal error").draw(right)
            right.plot(layer, errors[at], "o", color=MARK)
        else:
            lines(trace, layer, k, points).draw(right)
            right.set_title(f"marginal error {errors[at]:.1e}")
        canvas.draw()
        made.set_layout_engine("none")  # all frames as the first: nothing jumps, and laying out takes time
        images.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB"))
        tell(len(images) / len(layers))
    return images


def _mp4(images: list[Image], rate: float) -> bytes:
    """The film by ffmpeg, which cannot write an MP4 to a pipe: its file needs to be gone back to."""
    wide, tall = (size - size % 2 for size in images[0].size)  # even, as the common pixel format wants it
    stream = ["-f", "rawvideo", "-pixel_format", "rgb24", "-video_size", f"{wide}x{tall}", "-framerate", f"{rate:.6g}"]
    raw = b"".join(image.crop((0, 0, wide, tall)).tobytes() for image in [*images, *[images[-1]] * round(LAST * rate)])
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "film.mp4"
        call = ["ffmpeg", "-v", "error", *stream, "-i", "-", "-pix_fmt", "yuv420p", str(made)]
        done = subprocess.run(call, input=raw, capture_output=True, check=False)
        if done.returncode or not made.exists():
            why = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it wrote nothing"]
            raise ValueError(f"path cannot be written as .mp4: ffmpeg says {why[0]!r}; a .gif needs no ffmpeg")
        return made.read_bytes()
