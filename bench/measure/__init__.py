"""Clocks, machines and their ceilings."""
