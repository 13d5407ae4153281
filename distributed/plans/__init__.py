"""Which split: predicted times and the simulator."""
