"""The commands on words, ``otformer align`` and ``otformer probe``, and what they share."""
