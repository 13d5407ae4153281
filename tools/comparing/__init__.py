"""Comparisons of a model with onnxruntime: how far its results are, and where they first differ."""
