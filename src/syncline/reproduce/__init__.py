"""Reproduce the figures of the papers: run simulations, draw the figure, and check the paper's claim."""
