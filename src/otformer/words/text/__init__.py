"""Sentence pairs, dictionaries, gold alignments."""
