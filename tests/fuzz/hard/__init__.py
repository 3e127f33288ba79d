"""Exact and entropic problems with big M, must-link entries and blocks, judged by optima in whole numbers."""
