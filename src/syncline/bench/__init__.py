"""Measure how long a round takes, for Syncline and its alternatives, in one run on one machine."""
