"""The command `prune`."""
