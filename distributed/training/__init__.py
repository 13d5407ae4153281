"""Training of a network on its parts: every rank changes the weights that it has."""
