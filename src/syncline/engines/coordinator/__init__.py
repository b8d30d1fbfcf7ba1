"""The coordinator process: who takes part in a run, and who is alive."""
