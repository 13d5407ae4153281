"""Our native code inside onnxruntime: the shared object, the custom operator, the execution provider."""
