"""Layers to measure."""
