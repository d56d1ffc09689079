"""Where layers and ranks of a layout lie, and what no framework would start."""
