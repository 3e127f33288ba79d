"""Streams on a CUDA device: points laid out for the kernels, passes, products with the plan, and steps of a solver."""
