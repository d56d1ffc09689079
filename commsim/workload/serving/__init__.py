"""Serving a model: its memory, its two phases, and its own all_reduce."""
