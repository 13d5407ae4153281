"""Tied weights: what was made equal to another weight, or to its transpose, is not stored beside it.

before: initializers `embedding`, `head`, which is `Transpose(embedding)`, and `copy`, which is `embedding`
after: `embedding`, and a node `head = Transpose(embedding)`, which runtimes fold where they load the model
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

import onnx_ir as ir
from numpy import array_equal
from numpy.typing import NDArray

from .sparse_networks.node_format import DOMAIN

PROBE: Final = 64
"""Values of two weights that are compared before all are."""

Key = tuple[object, ...]


def tie_weights(model: ir.Model, made: Set[str]) -> None:
    """Let initializers named in `made` be taken from others that hold the same, maybe transposed, in place."""
    initializers = model.graph.initializers
    fixed = {value.name for value in (*model.graph.inputs, *model.graph.outputs)}
    free = sorted((name for name in initializers if name not in fixed), key=made.__contains__)
    stored: dict[Key, list[ir.Value]] = {}
    for name in free:
        value = initializers[name]
        array = _array(value)
        if array is None:
            continue
        if name in made and (source := _like(array, stored)) is not None:
            value.replace_all_uses_with(source)
            del initializers[name]
        elif name in made and array.ndim == 2 and (source := _like(array.T, stored)) and not _is_of_a_network(value):
            _compute_transposed(value, source, model.graph)
        else:
            stored.setdefault(_key(array), []).append(value)


def _array(value: ir.Value) -> NDArray[Any] | None:
    tensor = value.const_value
    return None if tensor is None or tensor.dtype == ir.DataType.STRING else tensor.numpy()


def _key(array: NDArray[Any]) -> Key:
    # + 0: zeros have no sign here, as a weight that was sparse has lost those of its zeros
    return str(array.dtype), array.shape, (array.flat[:PROBE] + 0).tobytes()


def _like(array: NDArray[Any], stored: Mapping[Key, Sequence[ir.Value]]) -> ir.Value | None:
    """Return the value that holds the same as `array`, None where none does."""
    for value in stored.get(_key(array), ()):
        other = _array(value)
        if other is not None and array_equal(other, array):
            return value
    return None


def _is_of_a_network(value: ir.Value) -> bool:
    """Return whether a sparse network reads the value: its code is made for constants, not for computed ones."""
    return any(node.domain == DOMAIN for node in value.consumers())


def _compute_transposed(tied: ir.Value, source: ir.Value, graph: ir.Graph) -> None:
    """Put a node that transposes `source` in the place of the initializer `tied`."""
    node = ir.Node("", "Transpose", [source], [ir.AttrInt64s("perm", [1, 0])], num_outputs=1)
    output, name = node.outputs[0], tied.name or ""
    output.type, output.shape = tied.type, tied.shape
    tied.replace_all_uses_with(output)
    del graph.initializers[name]
    output.name = name
    graph.insert_before(graph[0], node)
