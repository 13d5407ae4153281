"""Attention, as exporters write it and as operators of its own."""
