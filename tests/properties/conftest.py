"""Two profiles of hypothesis: ``ci`` draws the same examples every time; ``deep`` draws many, anew each time.

    HYPOTHESIS_PROFILE=deep python -m pytest tests/properties

A deep run that fails prints the line with which the example is made again (``@reproduce_failure``).
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]  # a first call compiles; others' processes take the time
settings.register_profile("ci", derandomize=True, max_examples=15, deadline=None, database=None, suppress_health_check=SLOW)
settings.register_profile(
    "deep", max_examples=300, deadline=None, database=None, print_blob=True, suppress_health_check=SLOW
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
