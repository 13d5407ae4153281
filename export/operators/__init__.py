"""One op becomes ONNX nodes: one table, one file a group of ops."""
