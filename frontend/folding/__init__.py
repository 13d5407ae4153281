"""Constant folding: what a graph computes from constants alone becomes constants."""
