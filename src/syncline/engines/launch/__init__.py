"""The launcher: plan a run, start its processes, watch them, and decide how the run ended."""
