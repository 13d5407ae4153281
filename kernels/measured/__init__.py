"""Measured times of kernels on layers, of this machine or others, and factors of layers nearby that follow."""
