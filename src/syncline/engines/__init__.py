"""Engines that run the nodes for real: in processes, over sockets and shared memory."""
