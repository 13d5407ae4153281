"""Machine code in this process: targets, the object cache, calls, and onnxruntime as the oracle."""
