"""ONNX out: the `pebble` dialect becomes the nodes of a standard ONNX model again."""
