"""From a model and a cluster to layouts, hardware and links: what to run, what to buy."""
