"""The papers' figures, each by one command: simulations, a picture, the numbers, and whether the claim holds here."""
