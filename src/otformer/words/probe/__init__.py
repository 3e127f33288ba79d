"""How much translation, and how much transport, there is in attention."""
