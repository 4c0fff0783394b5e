"""The sealed envelope: any bytes, sealed to one recipient's key (Move Stream, section 8)."""
