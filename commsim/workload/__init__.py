"""Training and inference steps: models, layouts, compute, memory and overlap in virtual time."""
