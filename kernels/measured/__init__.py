"""What was measured of kernels, on this machine or others, and what it says about layers nearby."""
