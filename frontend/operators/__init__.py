"""ONNX operators: one node becomes ops; one table, one file a group of operators."""
