"""The execution provider."""
