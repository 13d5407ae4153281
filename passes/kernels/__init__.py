"""Passes that say what a layer is and choose its kernels: structure, kernel family, I/O bounds."""
