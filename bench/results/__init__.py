"""Results, targets, tables and plots."""
