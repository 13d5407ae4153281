"""Cuts of a graph: rows, batch, owners of neurons."""
