"""Names, initializers and metadata of the nodes that are written."""
