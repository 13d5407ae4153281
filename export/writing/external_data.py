"""Whether a model keeps its weights in a file of their own; remembered where every weight was made anew."""

import onnx_ir as ir

KEY = "redpebble.external_data"


def has_external_weights(model: ir.Model) -> bool:
    """Return whether weights of `model` lie in a data file, or did in the model that it was made from."""
    values = (value for graph in model.graphs() for value in graph.initializers.values())
    return KEY in model.graph.meta or any(isinstance(value.const_value, ir.ExternalTensor) for value in values)


def remember_external_weights(model: ir.Model) -> None:
    """Note on `model`, where no file will show it, that its weights belong into a data file."""
    model.graph.meta[KEY] = True
