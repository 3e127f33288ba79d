"""Exact transport, with a certificate: rough layers, a sparse solver, and one look at all pairs."""
