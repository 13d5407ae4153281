"""Attributes of the `pebble` dialect: what passes decide, as IR text."""
