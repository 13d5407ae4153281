"""ONNX in: a model becomes one function of the `pebble` dialect."""
