"""The tree strategy: nodes without a master share their workers' updates over any loop-free topology."""
