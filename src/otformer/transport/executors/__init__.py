"""How one pass over the cost is computed."""
