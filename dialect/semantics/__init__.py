"""Reference semantics of the ops on numpy arrays."""
