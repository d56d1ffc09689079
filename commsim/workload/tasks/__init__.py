"""A training step as tasks on the streams of its ranks, and how they are played."""
