"""Side-by-side benchmarks: the same problems, to the same computed marginal error, for every installed library."""
