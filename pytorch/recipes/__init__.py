"""Scripts that train models of the zoo, with `redpebble.torch` alone."""
