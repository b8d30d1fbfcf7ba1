"""The protocol of the server strategy: shards, workers, and the coordinator that makes views."""
