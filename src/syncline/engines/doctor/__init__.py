"""`syncline doctor`: checks of one host, and of the way between two."""
