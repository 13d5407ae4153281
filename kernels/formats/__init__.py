"""Storage formats of the kernel families, one file a family."""
