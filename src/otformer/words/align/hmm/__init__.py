"""The hidden Markov models of word alignment."""
