"""Foundation of every layer: the tree of errors, files written whole."""
