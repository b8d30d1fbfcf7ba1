"""The PyTorch adapter: parameters become tables, and hooks exchange them. torch is imported only when it is used."""
