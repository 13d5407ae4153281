"""Connection orders that are constructed, not searched."""
