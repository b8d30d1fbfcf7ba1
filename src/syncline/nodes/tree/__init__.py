"""The protocol of the tree strategy: nodes that share sums over any loop-free topology."""
