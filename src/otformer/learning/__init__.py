"""Training a transformer to transport: the paper's section 1.2 and appendix A, and a recipe that goes beyond them."""
