"""Attention and transport on real translations: sentence pairs, words from subwords, dictionaries, gold and scores."""
