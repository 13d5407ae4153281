"""Prices of sums over the edges of a graph."""
