"""Facts of the values of a graph while its nodes are translated one after the other."""

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import BlockArgument, SSAValue

from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.symbolic_sizes import Size, SymbolicShape, product
from ...dialect.tensors import is_f32_tensor
from ...kernels.machine import ANY_MACHINE, Machine
from ..errors import CodesError, ModelError
from ..folding.known_constants import constant_array, is_constant, sparse_matrix
from ..folding.known_sizes import SizeTable, is_known
from ..folding.rotary_angles import Angles
from ..folding.shape_arithmetic import (
    ShapeQuery,
    ShapeValue,
    shape_value_of_constant,
    shape_value_of_node,
)
from ..reading.axis_names import every_free_axis, words_of
from ..reading.free_axes import dims_of
from ..reading.lazy_sparse_tensor import SparseTensor
from .onnx_types import dimension_names, named_sizes

MADE_UP: Final = "unk__"
"""The beginning of names that ONNX's inference gives to sizes that it does not know."""


class FixedSize(Exception):  # noqa: N818 - no fault of a model: it is read once more
    """A node fits inputs of one size alone, though the model leaves that to calls: all of it is read for that size."""

    def __init__(self, name: str, size: int) -> None:
        """Keep the name of the size, and what it has to be."""
        super().__init__(f"size {name}: expected {size} in each call")
        self.name, self.size = name, size


class ValueScope:
    """The values that are defined so far."""

    def __init__(
        self,
        model: onnx_ir.Model,
        inferred: Mapping[str, onnx_ir.Shape],
        score_masks: Mapping[onnx_ir.Node, onnx_ir.Value],
        *,
        angles: Mapping[onnx_ir.Node, Angles] = MappingProxyType({}),
        trust_declarations: bool,
        has_prologue: bool = False,
        has_networks: bool = True,
        takes_dense_codes: bool = True,
        machine: Machine = ANY_MACHINE,
    ) -> None:
        """Start without values; `inferred` are the shapes that others say of values, by name."""
        self.has_networks = has_networks
        """Whether layers may become native code, if only within networks."""
        self.machine = machine
        """The machine on which layers have to gain."""
        self.takes_dense_codes = takes_dense_codes
        """Whether weights of four bits may gain that have few zeros."""
        self.has_prologue = has_prologue
        """Whether nodes that are not covered are computed before all others, in each call."""
        self.score_masks = score_masks
        """The masks that may be added to scores, by the Where that hides these."""
        self.angles = angles
        """Cosines and sines of nodes that turn features, where they take these from tables by positions."""
        self._model = model
        self._inferred = inferred
        self._trust_declarations = trust_declarations
        self._values: dict[onnx_ir.Value, SSAValue] = {}
        self._refusals: dict[onnx_ir.Value, ModelError] = {}
        self._shape_values: dict[onnx_ir.Value, ShapeValue] = {}
        self._outside: dict[onnx_ir.Value, SymbolicShape] = {}
        """Sizes of values of any type that no op of ours yields."""
        self._constants: dict[str, ConstantOp | SparseConstantOp] = {}
        self._sizes = SizeTable()
        self.limits: dict[Size, Size] = {}
        """Size of the first part of an axis -> the end of that part, a size of the call that it never exceeds."""
        self._meanings: dict[Size, Size] = {}
        """Sizes by names that inference made up -> what they are."""

    @property
    def all_native(self) -> bool:
        """Whether all ops are going to be native code, none of them written as nodes again."""
        return self._trust_declarations or self.has_prologue

    def takes_edges(self, since: int) -> bool:
        """Return whether edges may be no constants: not where all nodes must be ops, or none could be written again."""
        return not self._trust_declarations and self.writes_opset >= since

    @property
    def writes_opset(self) -> float:
        """The opset in which ops are written again as nodes; any one where none is."""
        return inf if self.all_native else self._model.opset_imports.get("", 1)

    def opset_of(self, domain: str) -> int:
        """Return the version of an operator set."""
        return self._model.opset_imports.get(domain, 1)

    @property
    def only_gaining(self) -> bool:
        """Whether a layer that gains nothing stays as it is."""
        return not self._trust_declarations and not self.has_prologue

    @property
    def ir_version(self) -> int:
        """The version of the model's IR."""
        return self._model.ir_version

    def define(self, value: onnx_ir.Value, ssa: SSAValue) -> None:
        """Record what stands for an ONNX value."""
        self._values[value] = ssa
        if is_f32_tensor(ssa.type):
            # worked out now, while it is one step from what is known: later it would be one of many, each in the last
            self._sizes[ssa]

    def define_from_outside(self, value: onnx_ir.Value, ssa: SSAValue, sizes: SymbolicShape | None) -> None:
        """Record an argument or what a foreign op yields, with its sizes."""
        self._values[value] = ssa
        if sizes is not None:
            self._outside[value] = sizes
        if sizes is not None and is_f32_tensor(ssa.type):
            self._sizes.declare(ssa, sizes)

    def refuse(self, value: onnx_ir.Value, error: ModelError) -> None:
        """Record why nothing stands for an ONNX value; it matters only when something reads it."""
        self._refusals[value] = error

    def refusal_of_inputs(self, node: onnx_ir.Node) -> ModelError | None:
        """Return why one of the node's inputs is not there, codes excepted: the cause of what the node then lacks."""
        refusals = (self._refusals.get(value) for value in filter(None, node.inputs))
        return next((one for one in refusals if one is not None and not isinstance(one, CodesError)), None)

    def check_volumes(self, node: onnx_ir.Node, source: SymbolicShape, result: SymbolicShape) -> None:
        """Check that a Reshape, of which no size is left over, has as many values as it reads in calls of any size.

        An exporter that traces a module writes the length of the traced texts for one of them, and so for all.

        Raises:
            FixedSize: it has as many for one size of an axis of an input alone.
        """
        values = product(result)
        if not self.all_native or not values.coefficient:
            return
        ratio = product(source) / values
        # so many times a size of the input is 1
        if len(ratio.powers) != 1 or ratio.powers[0][1] not in (1, -1):
            return
        ((name, power),) = ratio.powers
        size = 1 / ratio.coefficient if power > 0 else ratio.coefficient
        free = words_of(every_free_axis(dims_of(self._model)))
        if size.denominator == 1 and size > 0 and name in free and _is_needed(node):
            raise FixedSize(name, int(size))

    def keep_constant(self, key: str, op: ConstantOp | SparseConstantOp) -> None:
        """Record a constant for later nodes."""
        self._constants[key] = op

    def named_sizes(self, shape: onnx_ir.Shape | None) -> SymbolicShape | None:
        """Return the sizes that a shape names, None for an unknown rank."""
        if shape is None:
            return None
        named = named_sizes(dimension_names(shape), self._sizes.fresh)
        return tuple(self._meanings.get(size, size) for size in named)

    def learn_names(self, value: onnx_ir.Value, sizes: SymbolicShape) -> None:
        """Record what the names mean that inference made up for the sizes of a value: it repeats them behind that."""
        shape = self._inferred.get(value.name or "")
        for word, size in zip(dimension_names(shape) if shape is not None else (), sizes, strict=False):
            if word.startswith(MADE_UP):
                self._meanings.setdefault(Size.symbol(word), size)

    def note_shape_value(self, node: onnx_ir.Node, opset: int) -> bool:
        """Work out what integers the node yields from shapes, and return whether they are known."""
        known = shape_value_of_node(ShapeQuery(node, opset, self.shape_value_of, self.sizes_of_onnx_value))
        if known is not None:
            self._shape_values[node.outputs[0]] = known
        return known is not None

    def sizes_of_onnx_value(self, value: onnx_ir.Value) -> SymbolicShape | None:
        """Return the sizes of a value of any type, None where its rank is not known."""
        if is_constant(value, self._model.ir_version) and value.const_value is not None:
            return tuple(Size.known(extent) for extent in value.const_value.shape.numpy())
        ssa = self._values.get(value)
        if ssa is not None and is_f32_tensor(ssa.type):
            return self._sizes[ssa]
        return self._outside.get(value) or self.named_sizes(value.shape)

    def value_of(self, value: onnx_ir.Value) -> SSAValue | None:
        """Return the IR's value, or None where there is none.

        Raises:
            ModelError: the node that yields the value is not covered.
        """
        if value in self._refusals:
            raise self._refusals[value]
        return self._values.get(value)

    def constant_of(self, value: onnx_ir.Value) -> NDArray[np.generic] | None:
        """Return the array of a constant of any shape, or None for anything else."""
        return constant_array(value, self._model.ir_version)

    def sparse_matrix_of(self, value: onnx_ir.Value) -> SparseTensor | None:
        """Return a constant that is kept sparse, or None for anything else."""
        return sparse_matrix(value, self._model.ir_version)

    def shape_value_of(self, value: onnx_ir.Value) -> ShapeValue | None:
        """Return what is known of the integers in a value."""
        array = None if self.sparse_matrix_of(value) is not None else self.constant_of(value)
        return self._shape_values.get(value) if array is None else shape_value_of_constant(array)

    def first_of_shape(self, value: SSAValue) -> SSAValue:
        """Return the value that was defined first of those that have the sizes of an f32 tensor."""
        if not is_f32_tensor(value.type):
            return value
        sizes = self._sizes[value]
        tensors = (other for other in self._values.values() if is_f32_tensor(other.type))
        return next((other for other in tensors if self._sizes[other] == sizes), value)

    def declared_sizes(self, value: onnx_ir.Value) -> SymbolicShape | None:
        """Return the sizes that the model states, where they are to be trusted."""
        return self.named_sizes(value.shape) if self._trust_declarations else None

    def with_numbers(self, value: onnx_ir.Value, sizes: SymbolicShape) -> SymbolicShape:
        """Return the sizes of a value, with numbers where only others know them: a weight behind it, for example."""
        shape = self._inferred.get(value.name or "")
        if shape is None or len(shape) != len(sizes):
            return sizes
        pairs = zip(sizes, shape, strict=True)
        return tuple(
            Size.known(number) if not is_known(size) and isinstance(number, int) else size for size, number in pairs
        )

    def inferred_shape(self, value: onnx_ir.Value) -> onnx_ir.Shape | None:
        """Return the shape of a value as inference finds it."""
        return self._inferred.get(value.name or "", value.shape)

    def argument_of_rows(self, value: SSAValue) -> SSAValue:
        """Return the first argument [rows, features] with as many rows as a value, which is returned where none has."""
        sizes = self._sizes[value]
        for other in self._values.values():
            if isinstance(other, BlockArgument) and is_f32_tensor(other.type):
                found = self._sizes[other]
                if len(found) == 2 and found[0] == sizes[0]:
                    return other
        return value

    def sizes_of(self, value: SSAValue) -> SymbolicShape:
        """Return the sizes of an f32 tensor."""
        return self._sizes[value]

    def emitted_constant(self, key: str) -> ConstantOp | SparseConstantOp | None:
        """Return the constant that an earlier node emitted under this key."""
        return self._constants.get(key)


def _is_needed(node: onnx_ir.Node) -> bool:
    """Return whether an output of the graph depends on a node."""
    seen, behind = {node}, [node]
    for one in behind:
        if any(value.is_graph_output() for value in one.outputs):
            return True
        readers = {use.node for value in one.outputs for use in value.uses()} - seen
        seen |= readers
        behind += readers
    return False
