"""Simulated annealing over any state, plain and compiled."""
