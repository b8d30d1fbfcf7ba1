"""Checkpoints of a whole run: where they lie, what they contain, and when they are due."""
