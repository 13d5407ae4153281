"""Emission of LLVM IR: builder, vectors, activations, reductions, transposition."""
