"""Which passes to run, and when to stop."""
