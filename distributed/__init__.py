"""One network on several machines: parts, the planner, and the ranks that run them over MPI."""
