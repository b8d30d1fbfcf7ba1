"""Syncline keeps the replicas of a model in step while many uneven machines train it over ordinary networks."""

__version__ = "0.1.0"
