"""What a message says where an optional part is not installed."""

from __future__ import annotations


def install(extra: str) -> str:
    """The command that installs an extra of pyproject.toml, of the package and of a checkout.

    >>> install("exact")
    "pip install 'otformer[exact]', or pip install -e '.[exact]' in a checkout"
    """
    return f"pip install 'otformer[{extra}]', or pip install -e '.[{extra}]' in a checkout"
