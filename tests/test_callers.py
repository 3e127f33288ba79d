"""A warning raised inside the package names the file and line of the code that called it."""

import sys
import warnings

from otformer.callers import warn


def test_warning_passes_over_frames_of_otformer_and_torch() -> None:
    inner = {"__name__": "otformer.network.deep", "warn": warn}
    exec("def call():\n    warn('not converged')", inner)
    outer = {"__name__": "torch.nn.modules.module", "call": inner["call"]}
    exec("def run():\n    call()", outer)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        line = sys._getframe().f_lineno + 1
        outer["run"]()
    assert [(each.filename, each.lineno, each.category) for each in seen] == [(__file__, line, RuntimeWarning)]
