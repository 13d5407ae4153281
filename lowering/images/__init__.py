"""Code of image networks: pixels as the columns of tiles."""
