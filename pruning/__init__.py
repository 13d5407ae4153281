"""Pruning of dense ONNX models: which weights go, how the others make up for it, and how many of each layer."""
