"""Markup and labels of one side of a translation, placed on the other along the links between the words."""
