"""Passes over the `pebble` dialect, by stage; a stage's folder holds one file a pass, which shows before and after."""
