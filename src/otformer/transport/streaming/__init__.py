"""Solving between points without the n × m matrix."""
