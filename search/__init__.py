"""Compiled search: counting transfers and annealing orders at millions of steps a second, held equal to the theory."""
