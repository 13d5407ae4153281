"""Passes between layers and one graph of neurons: flattening, orders of connections, memory steps."""
