"""Unbalanced, partial and debiased transport."""
