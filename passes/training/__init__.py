"""Passes that derive what training computes."""
