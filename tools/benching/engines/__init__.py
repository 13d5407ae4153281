"""Engines that `redpebble bench` can measure: ours, onnxruntime and optional peers."""
