"""Small Unix filters that move an AI agent: the Move Stream, sealed, between machines."""

__version__ = "0.1.0"
