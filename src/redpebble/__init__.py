"""redpebble makes pruned ONNX models fast on CPUs by moving less data."""
