"""Annealing of connection orders, compiled."""
