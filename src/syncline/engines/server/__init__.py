"""The server process: the shards of every model of a run."""
