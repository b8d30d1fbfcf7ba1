"""PyTorch: a model's parameters as tables, and hooks that exchange them. Nothing here is imported before it is used."""
