"""onnxruntime as the judge: random inputs, outputs compared."""
