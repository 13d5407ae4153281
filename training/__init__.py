"""Training of what a sparse network has left, in our own native code."""
