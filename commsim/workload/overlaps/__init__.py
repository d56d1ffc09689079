"""Overlap schedules, one a file, found by the names their classes give themselves."""
