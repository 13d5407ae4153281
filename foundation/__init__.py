"""What every layer may use: the tree of errors, files written whole."""
