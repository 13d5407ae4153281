"""Canonicalization patterns that every pass may take for granted."""
