"""Conformance suites for parts of your own."""
