"""Native code of ops over the nodes of a graph."""
