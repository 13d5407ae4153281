"""Passes over the `pebble` dialect, one a file; each one's docstring shows before and after."""
