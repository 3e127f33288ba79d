"""Long work over a corpus that goes on where it was interrupted."""
