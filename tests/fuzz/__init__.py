"""A fuzzer of the public functions and the command line: `make fuzz`."""
