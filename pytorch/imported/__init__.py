"""ONNX models as modules of torch: they are run, pruned and trained there, and their weights written back."""
