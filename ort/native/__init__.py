"""LLVM code of the operator library and the provider library."""
