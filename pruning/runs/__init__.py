"""Runs of a model on data, segment after segment, and how long its calls take."""
