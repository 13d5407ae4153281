"""Conversion of one node: what a converter may ask of it, and the ops it emits.

A converter is a function `(Conversion) -> results`, one result for each output it yields. It raises `NotCovered` with
what is not accepted; nothing that it emitted before then stays.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.few_bits import FewBitsAttr
from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.movement import ReshapeOp, TransposeOp
from ...dialect.provenance import set_provenance
from ...dialect.symbolic_sizes import SymbolicShape, product
from ...dialect.tensors import is_f32_tensor
from ...sparse.csr import CscMatrix
from ..errors import CodesError
from ..folding.known_sizes import is_known, shape_words, target_of
from ..folding.shape_arithmetic import ShapeValue
from ..reading.lazy_sparse_tensor import SparseTensor
from .onnx_types import describe
from .scope import ValueScope

Op = TypeVar("Op", bound=Operation)


class NotCovered(Exception):  # noqa: N818 - not an error by itself: in keep mode the node stays as it is
    """The node is not covered; the message says which attribute or value, and what is accepted."""


class YieldsCodes(NotCovered):
    """The node yields codes: it becomes part of the layer of whatever makes floats of them."""


class UnknownImage(NotCovered):
    """The node reads an image whose sizes are not known: those that calls choose can be stated."""


class Conversion:
    """The node being converted."""

    def __init__(self, node: onnx_ir.Node, opset: int, scope: ValueScope) -> None:
        self.node = node
        self.opset = opset
        """The version of the operator set that the node's domain has in the model."""
        self.scope = scope
        self.ops: list[Operation] = []
        self.constants: dict[str, ConstantOp | SparseConstantOp] = {}
        self.replaced: list[onnx_ir.Node] = []
        """Earlier nodes that the node's ops stand for as well: they are dropped where nothing else reads them."""
        self.read: set[str] = set()
        """Attributes of the node that the converter asked for, see `attributes.check_attributes`."""

    def attribute(self, name: str) -> onnx_ir.Attr | None:
        """Return an attribute of the node, None where it is left out."""
        self.read.add(name)
        return self.node.attributes.get(name)

    def attribute_of(self, node: onnx_ir.Node, name: str) -> onnx_ir.Attr | None:
        """Return an attribute of a node that may be the one that is converted."""
        return self.attribute(name) if node is self.node else node.attributes.get(name)

    def integer(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        attribute = self.attribute(name)
        return default if attribute is None else attribute.as_int()

    def number(self, name: str, default: float) -> float:
        """Return a float attribute."""
        attribute = self.attribute(name)
        return default if attribute is None else attribute.as_float()

    def text(self, name: str, default: str) -> str:
        """Return a string attribute."""
        attribute = self.attribute(name)
        return default if attribute is None else attribute.as_string()

    def integer_list(self, name: str) -> tuple[int, ...] | None:
        """Return an attribute that is a list of integers, or None when it is absent."""
        attribute = self.attribute(name)
        return None if attribute is None else tuple(attribute.as_ints())

    def input(self, index: int) -> onnx_ir.Value | None:
        """Return the ONNX value of an input, or None when it is left out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def has_input(self, index: int) -> bool:
        """Return whether the input is given."""
        return self.input(index) is not None

    def any_constant(self, index: int) -> NDArray[np.generic] | None:
        """Return the array of a constant input of any shape and element type, else None."""
        value = self.input(index)
        return None if value is None else self.scope.constant_of(value)

    def constant(self, index: int) -> NDArray[np.float32] | None:
        """Return the array of an f32 constant input of any shape, else None."""
        array = self.any_constant(index)
        return None if array is None or array.dtype != np.float32 else array.astype(np.float32, copy=False)

    def weight(self, index: int) -> NDArray[np.float32] | SparseTensor | None:
        """Return the array of an f32 constant input of any shape, else None; a sparse matrix stays sparse."""
        value = self.input(index)
        sparse = None if value is None else self.scope.sparse_matrix_of(value)
        return self.constant(index) if sparse is None else sparse

    def integers(self, index: int) -> tuple[int, ...] | None:
        """Return the integers of a constant input, else None."""
        known = self.shape_value(index)
        if known is None or not all(is_known(size) for size in known.sizes):
            return None
        return tuple(int(size.coefficient) for size in known.sizes)

    def shape_value(self, index: int) -> ShapeValue | None:
        """Return what is known of the integers in an input."""
        value = self.input(index)
        return None if value is None else self.scope.shape_value_of(value)

    def tensor(self, index: int) -> SSAValue:
        """Return an input that must be an f32 tensor of known rank; a constant is emitted.

        Raises:
            NotCovered: it is left out, or something else.
        """
        value = self.input(index)
        if value is None:
            raise NotCovered(f"expected a float tensor as input {index}, got none")
        return self.tensor_of(value)

    def tensor_of(self, value: onnx_ir.Value) -> SSAValue:
        """Return a value of the graph that must be an f32 tensor of known rank; a constant is emitted.

        Raises:
            NotCovered: it is something else.
        """
        array = self.scope.constant_of(value)
        if array is not None and array.dtype == np.float32:
            return self.emit_constant(array.astype(np.float32, copy=False), value.name or "")
        try:
            operand, kind = self.scope.value_of(value), "a value of unknown type"
        except CodesError:
            # the fault is not with the node that yields them: this one does not read codes
            operand, kind = None, "quantized values"
        if operand is None or not is_f32_tensor(operand.type):
            kind = describe(value.type) or kind
            rank = " of unknown rank" if kind == "tensor(float)" and value.shape is None else ""
            raise NotCovered(f"expected tensor(float) of known rank as input {value.name}, got {kind}{rank}")
        return operand

    def sizes(self, value: SSAValue) -> SymbolicShape:
        """Return the sizes of an f32 tensor."""
        return self.scope.sizes_of(value)

    def replaces(self, nodes: Sequence[onnx_ir.Node]) -> None:
        """Note that what the node becomes stands for earlier nodes, too."""
        self.replaced += nodes

    def emit(self, op: Op) -> Op:
        """Add an op to what the node becomes."""
        op.verify()
        self.ops.append(op)
        return op

    def emit_constant(self, array: NDArray[np.float32], name: str, variant: str = "") -> SSAValue:
        """Return a constant of the shape of `array`; `name` is its initializer, `variant` what was done to it.

        The same name and variant give the same constant for the whole graph.
        """
        key = f"{variant}:{name}"
        known = self.scope.emitted_constant(key) or self.constants.get(key)
        if known is not None and name:
            return known.result
        op = ConstantOp(np.asarray(array, dtype=np.float32))
        set_provenance(op, "", [name])
        self.constants[key if name else f"{variant}:#{len(self.constants)}"] = op
        return op.result

    def emit_sparse(
        self, weight: Callable[[], CscMatrix], name: str, variant: str, few_bits: FewBitsAttr | None = None
    ) -> SSAValue:
        """Return a sparse weight as `emit_constant` does; it is made only where there is none yet."""
        return self._emit_weight(lambda: SparseConstantOp(weight(), few_bits), name, variant)

    def emit_codes(
        self, weight: Callable[[], NDArray[np.float32]], name: str, variant: str, few_bits: FewBitsAttr
    ) -> SSAValue:
        """Return a dense weight of few bits as `emit_sparse` does."""
        return self._emit_weight(lambda: ConstantOp(weight(), few_bits), name, variant)

    def _emit_weight(self, make: Callable[[], ConstantOp | SparseConstantOp], name: str, variant: str) -> SSAValue:
        key = f"{variant}:{name}"
        known = self.scope.emitted_constant(key) or self.constants.get(key)
        if known is None:
            known = self.constants[key] = make()
            set_provenance(known, "", [name])
        return known.result

    def before_merge(self, x: SSAValue) -> SSAValue | None:
        """Return what a reshape made the rows `x` [rows, features] of, [..., features]; None for anything else.

        Features that were several axes, heads for example, are one.
        """
        op = x.owner
        if not isinstance(op, ReshapeOp) or len(self.sizes(x)) != 2:
            return None
        before, features = self.sizes(op.x), self.sizes(x)[-1]
        for leading in range(len(before) - 1, 1, -1):
            if is_known(features) and product(before[leading:]) == features:
                return op.x if leading == len(before) - 1 else self.reshape(op.x, (*before[:leading], features))
        return None

    def reshape(self, x: SSAValue, sizes: SymbolicShape) -> SSAValue:
        """Return `x` in another shape.

        Raises:
            NotCovered: the sizes are not copies of the input's axes but for one.
        """
        if isinstance(x.owner, ReshapeOp) and self.sizes(x.owner.x) == sizes:
            return x.owner.x
        target = target_of(self.sizes(x), sizes)
        if target is None:
            shapes = f"{shape_words(self.sizes(x))} to {shape_words(sizes)}"
            raise NotCovered(f"expected a reshape that leaves one size open, got {shapes}")
        return self.emit(ReshapeOp(x, target)).result

    def transpose(self, x: SSAValue, axes: Sequence[int]) -> SSAValue:
        """Return `x` with its axes in another order."""
        return self.emit(TransposeOp(x, axes)).result

    def axis(self, axis: int, rank: int) -> int:
        """Return a possibly negative axis counted from the front.

        Raises:
            NotCovered: there is no such axis.
        """
        if not -rank <= axis < rank:
            raise NotCovered(f"expected axis {-rank} to {rank - 1} of a tensor of rank {rank}, got {axis}")
        return axis % rank


Converter = Callable[[Conversion], Sequence[SSAValue]]
"""Emits what a node becomes and returns a value for each of its outputs."""
