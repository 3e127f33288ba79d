"""What tests of several files here need."""

from __future__ import annotations

import pytest

from otformer import replacing


@pytest.fixture(params=[True, False], ids=["exchange", "two renames"])
def exchange(request, monkeypatch):
    """Whether folders change places in one step, as on Linux, or by two renames, as elsewhere."""
    if not request.param:
        monkeypatch.setattr(replacing, "_exchanged", lambda one, other: False)
    return request.param
