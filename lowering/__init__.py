"""Lowering of the scheduled `pebble` dialect to LLVM: kernels, packed weights and the driver that calls them."""
