"""Depth-first schedules of chains of layers: order, slots, traffic, annealing."""
