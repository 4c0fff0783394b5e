"""An agent's Home: read as a sender, written as a receiver (Move Stream, sections 1, 4 to 7)."""
