"""Other libraries' calls on our engine."""
