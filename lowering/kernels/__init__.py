"""Code of the kernel families, one file a family; formats and prices are in `kernels/formats`."""
