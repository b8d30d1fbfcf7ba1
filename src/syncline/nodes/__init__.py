"""The protocols, as state machines. The simulator and the real engines run the same ones."""
