"""Tied weights: one that folding made of another, which stays for its other readers, is not stored beside it.

before: initializers `embedding` and `head`, which is `Transpose(embedding)`
after: `embedding`, and a node `head = Transpose(embedding)`, which runtimes fold where they load the model
"""

from collections.abc import Set

import numpy as np
import onnx_ir as ir


def tie_transposes(model: ir.Model, made: Set[str]) -> None:
    """Let initializers named in `made` that are transposes of other ones be computed from these, in place."""
    initializers = model.graph.initializers
    sources = [value for name, value in initializers.items() if name not in made]
    for name in sorted(made & {*initializers}):
        tied = initializers[name]
        source = next((one for one in sources if _is_transpose(tied, one)), None)
        if source is None or tied.is_graph_output():
            continue
        node = ir.Node("", "Transpose", [source], [ir.AttrInt64s("perm", [1, 0])], num_outputs=1)
        output = node.outputs[0]
        output.type, output.shape = tied.type, tied.shape
        tied.replace_all_uses_with(output)
        del initializers[name]
        output.name = name
        model.graph.insert_before(model.graph[0], node)


def _is_transpose(made: ir.Value, source: ir.Value) -> bool:
    one, other = made.const_value, source.const_value
    if one is None or other is None or one.dtype != other.dtype or len(one.shape) != 2 or len(other.shape) != 2:
        return False
    shapes = one.shape.numpy(), other.shape.numpy()
    return shapes[0] == shapes[1][::-1] and np.array_equal(one.numpy(), other.numpy().T)
