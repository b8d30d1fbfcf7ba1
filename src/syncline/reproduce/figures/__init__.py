"""The figures, one file per experiment of a paper."""
