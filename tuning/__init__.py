"""Measuring kernels and the machine, and remembering what was found."""
