"""Costs: a matrix, point clouds, point clouds on a GPU, rows spread over ranks, edges of a graph."""
