"""Ops over the nodes of a graph."""
