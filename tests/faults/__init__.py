"""Faults: commands that are killed, run twice at once, or meet a full disk or a clock that jumps. Run by `make faults`."""
