"""The model that the IR was imported from, as export looks things up in it."""

from collections.abc import Iterator, Set
from functools import cached_property

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from ..frontend.reading.model_file import OVERRIDABLE_SINCE
from .node_reads import defined_inside

Array = NDArray[np.float32] | NDArray[np.int64] | NDArray[np.int8] | NDArray[np.uint8]


SHARED_SIZE = 64
"""Constants up to this many values are looked up by what they hold, so that a clip keeps its own bounds."""


class Original:
    """A clone of the imported model, taken apart: its nodes are out of the graph, to be put back or left out."""

    def __init__(self, model: ir.Model, arguments: Set[str]) -> None:
        """Take `model` apart; the IR treats the values named `arguments` as variables."""
        self.model = model
        self.graph = model.graph
        self.nodes: tuple[ir.Node, ...] = tuple(model.graph)
        constants = set(self.graph.initializers) if model.ir_version < OVERRIDABLE_SINCE else set[str]()
        self.variables = {value.name or "" for value in self.graph.inputs} - (constants - arguments)
        self.values: dict[str, ir.Value] = {value.name or "": value for value in self._main_values()}
        self.outputs = tuple(self.graph.outputs)
        self._waiting = frozenset(self.nodes)
        self.graph.remove(self.nodes)

    def _main_values(self) -> Iterator[ir.Value]:
        yield from self.graph.inputs
        yield from self.graph.initializers.values()
        for node in self.graph:
            yield from node.outputs

    @property
    def opset(self) -> int:
        """The version of the standard operators.

        Raises:
            ValueError: the model imports none.
        """
        opset = self.graph.opset_imports.get("")
        if opset is None:
            raise ValueError(
                "expected the standard opset, for the nodes of the optimized graph, got a model that imports none"
            )
        return opset

    @cached_property
    def all_names(self) -> frozenset[str]:
        """Every value name of the model, those of subgraphs included."""
        inner = (value.name for node in self.nodes for value in defined_inside(node))
        return frozenset((*self.values, *(name or "" for name in inner)))

    @cached_property
    def transposed_by_gemm(self) -> frozenset[str]:
        """The names of the weights that a Gemm reads as [outputs, inputs]."""
        gemms = (node for node in self.nodes if node.op_type == "Gemm" and node.domain == "")
        transposed = (node.inputs[1] for node in gemms if node.attributes.get_int("transB", 0))
        return frozenset(value.name or "" for value in transposed if value is not None)

    @cached_property
    def nodes_by_name(self) -> dict[str, ir.Node]:
        return {node.name: node for node in reversed(self.nodes) if node.name}

    def left_out(self, node: ir.Node | None) -> bool:
        """Return whether a node is one of the original's main graph that was not put back."""
        return node is not None and node.graph is None and node in self._waiting

    def producer(self, name: str) -> ir.Node | None:
        """Return the node that computes the value `name` of the main graph."""
        value = self.values.get(name)
        return None if value is None else value.producer()

    def constant(self, name: str) -> Array | None:
        """Return the constant called `name` (an initializer or the output of a Constant), when it holds f32 or i64."""
        value = self.values.get(name)
        if value is None or name in self.variables:
            return None
        tensor = value.const_value if value.producer() is None else _constant_of(value.producer())
        if tensor is None or tensor.dtype not in (ir.DataType.FLOAT, ir.DataType.INT64):
            return None
        return tensor.numpy()

    def constants_of_size(self, size: int, among: Set[str] | None = None) -> Iterator[tuple[str, Array]]:
        """Yield the f32 constants of `size` values, by name; of those `among` some names, if these are given."""
        for name in self._names_by_size.get(size, ()):
            array = self.constant(name) if among is None or name in among else None
            if array is not None and array.dtype == np.float32:
                yield name, array

    @cached_property
    def _names_by_size(self) -> dict[int, list[str]]:
        names: dict[int, list[str]] = {}
        for name, value in self.graph.initializers.items():
            if value.const_value is not None and value.const_value.dtype == ir.DataType.FLOAT:
                names.setdefault(value.const_value.size, []).append(name)
        return names

    @cached_property
    def small_constants(self) -> dict[tuple[str, tuple[int, ...], bytes], str]:
        """Small constants: their content -> the name of the first one that holds it."""
        found: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        for name, value in self.values.items():
            if value.const_value is not None and value.const_value.size > SHARED_SIZE:
                continue
            array = self.constant(name)
            if array is not None and array.size <= SHARED_SIZE:
                found.setdefault(content_key(array), name)
        return found


def content_key(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    """Return a key that equal constants share."""
    return (str(array.dtype), array.shape, array.tobytes())


def _constant_of(node: ir.Node | None) -> ir.TensorProtocol | None:
    """Return the tensor of a Constant node; None for other nodes, and for strings and sparse values."""
    if node is None or node.op_type != "Constant" or node.domain != "":
        return None
    for name, attribute in node.attributes.items():
        match name:
            case "value":
                return attribute.as_tensor()
            case "value_float" | "value_floats":
                return ir.tensor(np.array(attribute.value, dtype=np.float32))
            case "value_int" | "value_ints":
                return ir.tensor(np.array(attribute.value, dtype=np.int64))
            case _:
                return None
    return None
