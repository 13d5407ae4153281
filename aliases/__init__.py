"""Modules of `redpebble` with the names of libraries: `redpebble.onnxruntime`, `redpebble.torch`.

The root of the repository is the package. Were they there, every program that runs at the root would import them
instead of the libraries; so the package looks for modules in this folder as well.
"""
