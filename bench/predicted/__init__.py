"""Times of kernels on CPUs that are not at hand, by LLVM's scheduling models."""
