"""Passes that permute hidden neurons."""
