"""The server strategy: parameter-server shards that each synchronise by themselves."""

from syncline.strategies.server.strategy import ServerStrategy

__all__ = ["ServerStrategy"]
