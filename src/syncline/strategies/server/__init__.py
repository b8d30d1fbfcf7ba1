"""The server strategy: parameter-server shards that each synchronise by themselves."""
