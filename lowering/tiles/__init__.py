"""Code of a tile of batch rows: memory, layers, threads, the loop over rows."""
