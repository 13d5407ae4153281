"""Our node for onnxruntime, and its body in standard operators."""
