"""Data movement of sparse networks: bounds, counting, orders and schedules; pure algorithms, no IR."""
