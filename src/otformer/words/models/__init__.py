"""Models of the transformers library, and the attention of their words."""
