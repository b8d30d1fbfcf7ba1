"""The folder that a launcher adds to PYTHONPATH of its workers; see sitecustomize.py."""
