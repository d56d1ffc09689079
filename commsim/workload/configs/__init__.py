"""A config.json to a Model: its keys, its layers, and what each architecture leaves unsaid."""
