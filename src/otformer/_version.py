"""The version, on its own so that every room can read it without importing the package's public names."""

__version__ = "0.1.0"
