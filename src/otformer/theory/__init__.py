"""The mathematics as functions: the Hilbert metric, the paper's bounds, our rates. Proofs are in docs/theory.md."""
