"""Inside onnxruntime: sessions, custom operators, the execution provider, and the linker for them."""
