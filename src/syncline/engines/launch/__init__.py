"""The launcher: what is to be started, starting it, and what becomes of it."""
