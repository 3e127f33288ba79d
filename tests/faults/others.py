"""Other faults."""

OTHERS = {}
