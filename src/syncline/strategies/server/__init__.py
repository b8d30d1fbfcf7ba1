"""The server strategy: a parameter server in shards. Each bucket of a shard is synchronised by itself."""

from syncline.strategies.server.strategy import ServerStrategy

__all__ = ["ServerStrategy"]
