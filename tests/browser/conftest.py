"""The browser that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.browser import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = Browser()
    yield found
    found.close()
