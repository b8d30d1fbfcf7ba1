"""The figures themselves, a file for each experiment of a paper."""
