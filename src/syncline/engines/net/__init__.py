"""Connections between the processes of a run: frames, addresses, keys, shared memory, and one event loop."""
