"""Plans: candidates of a split, their predicted times and the simulator."""
