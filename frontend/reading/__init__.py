"""A file, bytes or a model in memory becomes a checked onnx-ir model."""
