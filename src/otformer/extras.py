"""What a message says where an optional part is not installed, or is and cannot be imported."""

from __future__ import annotations

from importlib.util import find_spec

# A part: what pip installs for it, and the extra of a checkout that brings it; a checkout itself brings the others.
_PARTS = {
    "words": ("otformer-words", ""),
    "lab": ("otformer-lab", ""),
    "plots": ("otformer[plots]", ""),
    "exact": ("numba", ""),
    "ray": ("otformer-words[ray]", "[ray]"),
}


def install(part: str) -> str:
    """The commands that install a part, from an index or in a checkout.

    >>> install("words")
    "pip install 'otformer-words', or pip install -e '.' in a checkout"
    >>> install("ray")
    "pip install 'otformer-words[ray]', or pip install -e '.[ray]' in a checkout"
    """
    package, extra = _PARTS[part]
    return f"pip install '{package}', or pip install -e '.{extra}' in a checkout"


def installed(part: str) -> bool:
    """Whether a part of otformer that is a package of its own, words or lab, is there."""
    found = find_spec(f"otformer.{part}")
    return found is not None and found.origin is not None  # an empty folder has no origin


def lacks(name: str, part: str) -> str:
    """The message for a name whose package is not installed.

    >>> lacks("align", "words").partition(": ")[0]
    'align needs the package otformer-words, which is not installed'
    """
    return f"{name} needs the package otformer-{part}, which is not installed: {install(part)}"


def absence(error: ImportError, module: str) -> str:
    """What is wrong with a module that cannot be imported: it may be there, and lack something itself.

    >>> absence(ModuleNotFoundError("No module named 'numba'", name="numba"), "numba")
    'not installed'
    >>> absence(ImportError("Numba needs NumPy 2.2 or less"), "numba")
    'broken (Numba needs NumPy 2.2 or less)'
    """
    missing = isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] == module
    return "not installed" if missing else f"broken ({error})"
