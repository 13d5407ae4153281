"""Ranks at work."""
