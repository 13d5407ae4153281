"""Nodes of ONNX around a sum over edges, as a converter walks back through them."""

from typing import TypeGuard

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ....dialect.symbolic_sizes import Size, SymbolicShape
from ..conversion import Conversion, NotCovered
from .edge_lists import Indices
from .edges_of_call import unshaped

Ends = Indices | onnx_ir.Value
"""Nodes at one end of all edges: numbers, or the value that a call computes them in."""


class NoPattern(NotCovered):
    """The nodes are not what was looked for."""


class EdgePattern:
    """The nodes behind one that is converted, from there on."""

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion
        self.nodes: list[onnx_ir.Node] = []

    def operands(self, node: onnx_ir.Node, is_first: object) -> tuple[onnx_ir.Value, onnx_ir.Value]:
        """Return the two operands of a node, the one first that a question is true of.

        Raises:
            NoPattern: it is true of none.
        """
        assert callable(is_first)
        left, right = (self.given(value) for value in node.inputs)
        if is_first(left):
            return left, right
        if is_first(right):
            return right, left
        raise NoPattern

    def sizes_of(self, value: onnx_ir.Value | None) -> SymbolicShape | None:
        """Return the sizes of what sums start from."""
        value = self._renamed(self.given(value))
        node = value.producer()
        if node is not None and node.op_type == "ConstantOfShape" and node.inputs[0] is not None:
            known = self.conversion.scope.shape_value_of(node.inputs[0])
            return None if known is None else known.sizes
        array = self.constant(value)
        sparse = self.conversion.scope.sparse_matrix_of(value)
        shape = tuple(sparse.shape.numpy()) if sparse is not None else None if array is None else array.shape
        return None if shape is None else tuple(Size.known(int(size)) for size in shape)

    def is_column(self, value: onnx_ir.Value) -> bool:
        """Return whether a value is [edges, 1]."""
        shape = self.conversion.scope.inferred_shape(value)
        return shape is not None and len(shape) == 2 and shape[1] == 1

    def gathered(self, value: onnx_ir.Value | None, ends: Ends) -> onnx_ir.Value:
        """Return what is gathered along edges, at the given end of them.

        Raises:
            NoPattern: nothing is.
        """
        node = self.operator(value, "Gather")
        if not same_ends(self.index(node), ends):
            raise NoPattern
        return self.given(node.inputs[0])

    def scattered(self, node: onnx_ir.Node, ends: Ends, wanted: onnx_ir.Value, reduction: str) -> None:
        """Check that a node reduces a value of edges at the given end of them.

        Raises:
            NoPattern: it does not.
        """
        count = 1 if isinstance(ends, onnx_ir.Value) else len(ends)
        updates = self.unsliced(self.given(node.inputs[2]), count)
        same = same_ends(self.ends(self.given(node.inputs[1])), ends) and self.text(node, "reduction") == reduction
        if updates is not wanted or not same:
            raise NoPattern

    def operator(self, value: onnx_ir.Value | None, name: str) -> onnx_ir.Node:
        """Return the node that yields a value, behind what leaves it as it is.

        Raises:
            NoPattern: it has another operator.
        """
        node = self.unsliced(self.given(value), 1).producer()
        if node is None or (node.domain, node.op_type) != ("", name):
            raise NoPattern
        axis = node.attributes.get("axis")
        if name in ("Gather", "ScatterElements") and axis is not None and axis.as_int() != 0:
            raise NoPattern
        self.nodes.append(node)
        return node

    def unsliced(self, value: onnx_ir.Value, count: int) -> onnx_ir.Value:
        """Return a value before an Identity, or a Slice that leaves nothing out: updates are cut to their index.

        Raises:
            NoPattern: a Slice leaves something out.
        """
        node = value.producer()
        if node is None or node.op_type not in ("Identity", "Slice"):
            return value
        if node.op_type == "Slice" and len(node.inputs) > 3:
            return value
        if node.op_type == "Slice" and not self._fits_index(node):
            starts, ends = (None if len(node.inputs) < 3 else self.constant(one) for one in node.inputs[1:3])
            whole = starts is not None and ends is not None and not starts.any() and ends[0] >= count
            # the updates have as many edges as the index, and as many features as the start: onnxruntime checks that
            if not whole:
                raise NoPattern
        self.nodes.append(node)
        return self.unsliced(self.given(node.inputs[0]), count)

    def _fits_index(self, node: onnx_ir.Node) -> bool:
        """Return whether a Slice cuts to the shape of an index that was spread over what is cut: all stays."""
        starts = None if len(node.inputs) != 3 else self.constant(node.inputs[1])
        end = None if starts is None or starts.any() else self.given(node.inputs[2]).producer()
        if not _is_shape(end):
            return False
        spread = self.given(end.inputs[0]).producer()
        shape = None if spread is None or spread.op_type != "Expand" else self.given(spread.inputs[1]).producer()
        return _is_shape(shape) and shape.inputs[0] is node.inputs[0]

    def index(self, node: onnx_ir.Node) -> Ends:
        """Return the node of each row that a Gather takes.

        Raises:
            NoPattern: its index is no list.
        """
        value = self.given(node.inputs[1])
        array = self.constant(value)
        if array is None and (shape := self.conversion.scope.inferred_shape(value)) is not None and len(shape) == 1:
            return unshaped(self.conversion, value)
        if array is None or array.ndim != 1 or array.dtype.kind != "i":
            raise NoPattern
        return array.astype(np.int64)

    def ends(self, value: onnx_ir.Value) -> Ends:
        """Return the node of each row of an index that all features share.

        Raises:
            NoPattern: it is no such index.
        """
        value = self._renamed(value)
        node = value.producer()
        if node is not None and node.op_type == "Expand":
            self.nodes.append(node)
            value = self.given(node.inputs[0])
        array = self.constant(value)
        if array is None and node is not None and node.op_type == "Expand":
            return unshaped(self.conversion, value)
        if array is None or array.ndim < 2 or array.dtype.kind != "i" or not array.size:
            raise NoPattern
        rows = array.reshape(len(array), -1)
        if not (rows == rows[:, :1]).all():
            raise NoPattern
        return rows[:, 0].astype(np.int64)

    def is_zero(self, value: onnx_ir.Value | None) -> bool:
        """Return whether a value is known to be 0 everywhere."""
        return value is not None and self.is_filled(value, 0.0)

    def is_filled(self, value: onnx_ir.Value, number: float) -> bool:
        """Return whether a value is known to be a number everywhere."""
        fill = self.fill_of(value)
        return fill is not None and fill == number

    def fill_of(self, value: onnx_ir.Value) -> float | None:
        """Return the number that is everywhere in a value; None where it is not known, or there are several."""
        value = self._renamed(value)
        sparse, array = self.conversion.scope.sparse_matrix_of(value), self.constant(value)
        if sparse is not None:
            return None if len(sparse.entries().values) else 0.0
        if array is not None:
            number = np.float32(array.flat[0]) if array.size else np.float32(0)
            return float(number) if bool((array == number).all()) else None
        node = value.producer()
        if node is None or node.op_type != "ConstantOfShape":
            return None
        self.nodes.append(node)
        fill = node.attributes.get("value")
        return 0.0 if fill is None else float(fill.as_tensor().numpy().reshape(-1)[0])

    def _renamed(self, value: onnx_ir.Value) -> onnx_ir.Value:
        """Return a value before nodes that leave it as it is."""
        while (node := value.producer()) is not None and (node.domain, node.op_type) == ("", "Identity"):
            self.nodes.append(node)
            value = self.given(node.inputs[0])
        return value

    def constant(self, value: onnx_ir.Value | None) -> NDArray[np.generic] | None:
        """Return the array of a constant, else None."""
        return None if value is None else self.conversion.scope.constant_of(value)

    def text(self, node: onnx_ir.Node, name: str) -> str:
        """Return an attribute that is a string, "none" where it is absent."""
        attribute = node.attributes.get(name)
        return "none" if attribute is None else attribute.as_string()

    def given(self, value: onnx_ir.Value | None) -> onnx_ir.Value:
        """Return an input.

        Raises:
            NoPattern: it is left out.
        """
        if value is None:
            raise NoPattern
        return value


def _is_shape(node: onnx_ir.Node | None) -> TypeGuard[onnx_ir.Node]:
    """Return whether a node yields all sizes of its input; onnxruntime writes the first axis down."""
    if node is None or node.op_type != "Shape" or "end" in node.attributes:
        return False
    start = node.attributes.get("start")
    return start is None or start.as_int() == 0


def same_ends(left: Ends, right: Ends) -> bool:
    """Return whether ends are the same: their numbers, or the value that they come from."""
    if isinstance(left, onnx_ir.Value) or isinstance(right, onnx_ir.Value):
        return left is right
    return np.array_equal(left, right)
