"""How things show themselves: a card of facts and pictures, as HTML in a notebook, as text in a terminal, as a file."""
