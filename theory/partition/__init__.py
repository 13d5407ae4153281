"""Hypergraph partitions of a chain of layers."""
