"""Structure of one sparse matrix: similar rows, blocks, n of m, strides, bands, components."""
