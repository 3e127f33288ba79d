"""Word aligners."""
