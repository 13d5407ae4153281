"""Measuring: engines side by side in one process, medians of interleaved runs."""
