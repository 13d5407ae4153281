"""Nodes that stay as they are, beside the ops that others become."""
