"""Quantized layers on rows of bytes."""
