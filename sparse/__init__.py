"""Sparse matrices without values: the CSR pattern, its fingerprint, its structure; numpy only."""
