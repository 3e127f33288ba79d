"""Other faults."""
OTHERS = {}
