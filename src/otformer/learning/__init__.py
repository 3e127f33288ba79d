"""The trainable transformer of the paper's appendix A, and the trained weights that ship. Trainings are in lab/training."""
