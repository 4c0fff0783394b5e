"""An agent's Home: read as a sender, written as a receiver (Move Stream, sections 1, 4, 4a and 5)."""
