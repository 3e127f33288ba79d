"""Exact transport, with a certificate: rough layers, a sparse solver, and one scan of all pairs."""
