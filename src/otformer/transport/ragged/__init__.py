"""Many problems of different sizes at once."""
