"""Training of the transformer of appendix A: problems, objectives, recipes, and the run."""
