"""Worked examples that run: `python -m redpebble.pruning.examples.digits` and `.weather`."""
