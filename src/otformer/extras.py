"""What a message says where an optional part is not installed, or is and cannot be imported."""

from __future__ import annotations


def install(extra: str) -> str:
    """The command that installs an extra of pyproject.toml, of the package and of a checkout.

    >>> install("exact")
    "pip install 'otformer[exact]', or pip install -e '.[exact]' in a checkout"
    """
    return f"pip install 'otformer[{extra}]', or pip install -e '.[{extra}]' in a checkout"


def absence(error: ImportError, module: str) -> str:
    """What is wrong with a module that cannot be imported: it may be there, and lack something itself.

    >>> absence(ModuleNotFoundError("No module named 'numba'", name="numba"), "numba")
    'not installed'
    >>> absence(ImportError("Numba needs NumPy 2.2 or less"), "numba")
    'broken (Numba needs NumPy 2.2 or less)'
    """
    missing = isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] == module
    return "not installed" if missing else f"broken ({error})"
