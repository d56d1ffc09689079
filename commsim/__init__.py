"""commsim predicts what GPU communication costs."""

__version__ = "0.1.0"
