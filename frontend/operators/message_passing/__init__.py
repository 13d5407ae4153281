"""Message passing over the edges of a graph, as exporters write it."""
