"""Passes that leave fewer and simpler layers of the same function; they pay on any runtime."""
