"""`redpebble explain --serve`: a page on the loopback address where passes and kernels are chosen and measured."""
