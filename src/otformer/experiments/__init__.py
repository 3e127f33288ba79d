"""One module for each figure or claim. They stand on `otformer.report`, which draws and shows what they find."""
