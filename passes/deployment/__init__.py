"""Passes for other runtimes and machines: our nodes for onnxruntime, groups, ranks."""
