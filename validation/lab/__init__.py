"""The CPU network lab: collectives run for real over links shaped by Linux, and predicted.

One network namespace a rank, joined by veth pairs and bridges; see docs/lab.md.
"""
