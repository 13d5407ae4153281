"""The graph as a function of the dialect: arguments, one node after the other, results."""

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.transforms.dead_code_elimination import is_trivially_dead
from xdsl.utils.exceptions import VerifyException

from ..dialect.ops.attention import Attention
from ..dialect.ops.constants import ConstantOp, SparseConstantOp
from ..dialect.ops.foreign import CODES, ForeignOp, ForeignType
from ..dialect.ops.graphs import AttendEdgesOp
from ..dialect.ops.images import ImageLayerOp
from ..dialect.ops.layers import LinearOp
from ..dialect.ops.movement import ConcatOp, ReshapeOp, SplitOp, TransposeOp
from ..dialect.provenance import name_in_text, name_value, set_provenance, value_name
from ..dialect.shape_inference import described_by
from ..dialect.symbolic_sizes import DIMS, NAME, ONE, Size, SymbolicShape, broadcast
from ..dialect.tensors import DYNAMIC, shape_of
from ..kernels.machine import ANY_MACHINE, Machine
from ..sparse.densities import MOSTLY_ZEROS
from .errors import (
    CodesError,
    InvalidModelError,
    ModelError,
    UnknownSizesError,
    UnsupportedModelError,
    first_line,
)
from .folding.known_constants import constant_array, is_constant, overridable
from .folding.known_sizes import broadcast_sizes, is_known
from .folding.rotary_angles import add_angles
from .folding.score_masks import add_score_masks
from .folding.shape_arithmetic import ShapeValue
from .kept_nodes import EqualNodes, give_outputs_nodes, operator_text, source_of_shape, values_read
from .operators.attributes import check_attributes
from .operators.conversion import Conversion, NotCovered, UnknownImage, YieldsCodes
from .operators.movement import reshaped
from .operators.normalization import ONE_NODE_NORMALIZATIONS
from .operators.onnx_types import describe, dimension_names, pebble_type
from .operators.quantized_operands import stated_codes
from .operators.scope import ValueScope
from .operators.shape_inference import Inferred, infer_types
from .operators.table import CONVERTERS
from .reading.free_axes import size_options
from .reading.model_source import KNOWN_DOMAINS
from .sparse_weights import LAYERS, PACKED, graph_of, has_sparse_convolution, is_dense_convolution

# Sizes that nodes of any type make of integers: what ONNX's inference gives a name to that says nothing.


def made_sizes(conversion: Conversion) -> SymbolicShape | None:
    """Return the sizes of what one of `RULES` yields; None where they are not known, and for other nodes."""
    rule = RULES.get(conversion.node.op_type) if conversion.node.domain == "" else None
    return None if rule is None else rule(conversion)


def _expanded(conversion: Conversion) -> SymbolicShape | None:
    source, target = _source(conversion), _target(conversion)
    return None if source is None or target is None else broadcast(source, target.sizes)


def _reshaped(conversion: Conversion) -> SymbolicShape | None:
    source, target = _source(conversion), _target(conversion)
    if source is None or target is None:
        return None
    try:
        return reshaped(conversion, source, target)
    except NotCovered:
        return None


def _range(conversion: Conversion) -> SymbolicShape | None:
    """Return the limit where a range counts from 0 by 1."""
    start, limit, step = (conversion.shape_value(index) for index in range(3))
    if start is None or limit is None or step is None or step.sizes != (ONE,) or start.sizes != (Size.known(0),):
        return None
    return limit.sizes if len(limit.sizes) == 1 and limit.sizes[0].coefficient >= 0 else None


def _filled(conversion: Conversion) -> SymbolicShape | None:
    shape = conversion.shape_value(0)
    return None if shape is None or shape.scalar else shape.sizes


def _sliced(conversion: Conversion) -> SymbolicShape | None:
    """Return the sizes of a part whose ends a call knows: axes that are not cut have those of the source."""
    source, axes = _source(conversion), conversion.integers(3)
    part = conversion.scope.named_sizes(conversion.scope.inferred_shape(conversion.node.outputs[0]))
    if source is None or axes is None or part is None or len(part) != len(source):
        return None
    cut = {axis % len(source) for axis in axes}
    ends, starts = conversion.shape_value(2), conversion.integers(1)
    if len(axes) == 1 and ends is not None and len(ends.sizes) == 1 and starts == (0,) and not is_known(ends.sizes[0]):
        conversion.scope.limits[part[axes[0] % len(source)]] = ends.sizes[0]
    return tuple(size if axis in cut else whole for axis, (size, whole) in enumerate(zip(part, source, strict=True)))


def _added(conversion: Conversion) -> SymbolicShape | None:
    """Return the sizes of a sum that fits if the first so many of a table are as many: positions of tokens, say."""
    shapes = [None if x is None else conversion.scope.sizes_of_onnx_value(x) for x in conversion.node.inputs]
    left, right = (list(sizes) if sizes else [] for sizes in shapes)
    limits, has_parts = conversion.scope.limits, False
    for axis in range(1, 1 + min(len(left), len(right))):
        for one, other in ((left, right), (right, left)):
            if limits.get(one[-axis]) == other[-axis]:
                one[-axis], has_parts = other[-axis], True
    return broadcast_sizes(tuple(left), tuple(right)) if has_parts else None


def _source(conversion: Conversion) -> SymbolicShape | None:
    x = conversion.input(0)
    return None if x is None else conversion.scope.sizes_of_onnx_value(x)


def _target(conversion: Conversion) -> ShapeValue | None:
    target = conversion.shape_value(1)
    return None if target is None or target.scalar else target


RULES: Final = MappingProxyType[str, Callable[[Conversion], SymbolicShape | None]](
    {
        "Add": _added,
        "ConstantOfShape": _filled,
        "Expand": _expanded,
        "Range": _range,
        "Reshape": _reshaped,
        "Slice": _sliced,
    }
)


MOVING: Final = (ConcatOp, ReshapeOp, SplitOp, TransposeOp)
"""Ops that a runtime would spend time on where one node did without them before."""


class Translated(NamedTuple):
    """A module, the names of the initializers that its own ops use, and the nodes that became several ops."""

    module: ModuleOp
    constants: frozenset[str]
    expanded: frozenset[str]
    """See `node_identity`."""
    reasons: Mapping[int, str]
    """Position of a node that stays -> what is not accepted of it."""
    waiting: frozenset[int]
    """Positions of nodes that wait for the sizes of an image."""


NO_CONVOLUTION: Final = "no sparse convolution gains enough by it"
NO_NETWORK: Final = "no sparse network stands beside it"
NO_MOVES: Final = "it would take several operators that move values, and no sparse layer gains by them"
"""The reason why a node on images stays that has code."""


ERRORS: Final[Mapping[type[NotCovered], type[UnsupportedModelError]]] = {
    YieldsCodes: CodesError,
    UnknownImage: UnknownSizesError,
}
"""Reason that a node is not covered -> the error where it may not stay, if it has one of its own."""


WORDS_OF_CODES: Final = ("uantize", "QLinear", "Integer")
"""Words in the names of operators on codes."""


class Keep(NamedTuple):
    """Nodes that stay as they are."""

    foreign: bool
    """Whether nodes that are not covered stay."""
    moving: bool = True
    """Whether nodes stay, too, whose values have to be moved for their layers to be ours."""
    whole: Set[str] | None = None
    """Such nodes, see `node_identity`; None for all."""
    may_add: bool = True
    """Whether masks may be added that the model has no node for, see `score_masks`."""
    leaves_front: bool = False
    """Whether work on images stays that reads nothing of a layer with zeros: networks begin at such layers."""
    dense_codes: bool = True
    """Whether weights of four bits may gain that have few zeros."""
    machine: Machine = ANY_MACHINE
    """The machine on which layers of bytes have to gain."""

    @property
    def has_networks(self) -> bool:
        """Whether layers may become native code, if only within networks."""
        return not (self.foreign and self.moving) or self.whole is not None

    def names(self, node: onnx_ir.Node) -> bool:
        """Return whether a node is one of `whole`."""
        return self.whole is not None and node_identity(node) in self.whole


def translate(model: onnx_ir.Model, keep: Keep) -> Translated:
    """Return the model's main graph as `@main`.

    Raises:
        InvalidModelError: a node contradicts itself.
        UnsupportedModelError: a node is not covered, and may not stay as it is.
    """
    if keep.foreign:
        give_outputs_nodes(model)
    translation = _Translation(model, keep)
    for position, node in enumerate(model.graph):
        translation.add(position, node)
    return translation.finish()


MOST_CODE_BYTES: Final = 1 << 29
"""Packed codes of a model, two in a byte, up to which weights with few zeros are read: floats take 8 times as much."""


def _code_bytes(model: onnx_ir.Model) -> int:
    """Return the bytes of all packed codes of a model."""
    packed = {node.inputs[1] for node in model.graph if node.op_type in PACKED}
    return sum(value.const_value.nbytes for value in packed if value is not None and value.const_value is not None)


def _is_on_codes(node: onnx_ir.Node) -> bool:
    return any(word in node.op_type for word in WORDS_OF_CODES)


class _Translation:
    """The function as far as it is built."""

    def __init__(self, model: onnx_ir.Model, keep: Keep) -> None:
        keep_foreign, whole = keep.foreign, keep.whole
        self._model = model
        self._keep_foreign = keep_foreign
        self._keep_moving = keep.foreign and keep.moving
        self._whole = whole
        self._has_sparse_convolution = keep_foreign and whole is not None and has_sparse_convolution(graph_of(model))
        self._leaves_front = keep.leaves_front and not any(_is_on_codes(node) for node in model.graph)
        self._behind_sparse: set[onnx_ir.Value] = set()
        self._expanded: set[str] = set()
        self._reasons: dict[int, str] = {}
        self._waiting: set[int] = set()
        self._masks = add_score_masks(model) if keep_foreign and keep.may_add else {}
        self._angles = {} if self._keep_moving else add_angles(model)
        self._inferred: Mapping[str, Inferred] = infer_types(model) if keep_foreign else {}
        shapes = {name: found.shape for name, found in self._inferred.items() if found.shape is not None}
        self._scope = ValueScope(
            model,
            shapes,
            self._masks,
            angles=self._angles,
            trust_declarations=not keep_foreign,
            has_prologue=keep_foreign and not keep.moving,
            has_networks=keep.has_networks,
            takes_dense_codes=keep.dense_codes and _code_bytes(model) <= MOST_CODE_BYTES,
            machine=keep.machine,
        )
        self._block = Block()
        self._shape_ops: list[ForeignOp] = []
        self._kept: dict[onnx_ir.Node, ForeignOp] = {}
        self._equal = EqualNodes()
        self._replaced: set[onnx_ir.Node] = set()
        self._known_by: set[str] = set()
        self._arguments = [value for value in model.graph.inputs if self._is_argument(value)]
        for value in self._arguments:
            sizes = self._scope.named_sizes(value.shape)
            argument = self._block.insert_arg(pebble_type(value.type, sizes), len(self._block.args))
            name_in_text(argument, value.name or "")
            self._scope.define_from_outside(value, argument, sizes)

    def _is_argument(self, value: onnx_ir.Value) -> bool:
        return (self._keep_foreign and self._may_be_overridden(value)) or not value.is_initializer()

    def _may_be_overridden(self, value: onnx_ir.Value) -> bool:
        return overridable(value, self._model.ir_version)

    def add(self, position: int, node: onnx_ir.Node) -> None:
        """Translate the next node."""
        if self._leaves_front and self._is_behind_sparse(node):
            self._behind_sparse.update(node.outputs)
        is_shape_value = False
        try:
            is_shape_value = self._scope.note_shape_value(node, self._scope.opset_of(node.domain))
            self._convert(node)
        except NotCovered as reason:
            if self._keep_foreign:
                self._reasons[position] = str(reason).removeprefix(": ").strip()
                if isinstance(reason, UnknownImage):
                    self._waiting.add(position)
                self._keep(position, node, is_shape_value=is_shape_value)
            else:
                kind = ERRORS.get(type(reason), UnsupportedModelError)
                own = kind(f"{self._label(position, node)}{reason}")
                self._refuse(node, self._scope.refusal_of_inputs(node) or own)
        except UnsupportedModelError as reason:
            self._refuse(node, reason)
        except (VerifyException, TypeError, ValueError, LookupError, ArithmeticError) as fault:
            # the latter say that an attribute or a constant is not what the operator has
            raise InvalidModelError(f"{self._label(position, node)}: {first_line(fault)}") from fault

    def _is_behind_sparse(self, node: onnx_ir.Node) -> bool:
        """Return whether a node may be a layer with zeros, or reads what one yields."""
        if any(value in self._behind_sparse for value in values_read(node)):
            return True
        return (node.domain, node.op_type) in LAYERS and not is_dense_convolution(node, self._model.ir_version)

    def _convert(self, node: onnx_ir.Node) -> None:
        """Emit what the table's converter makes of a node, or nothing at all."""
        converter = CONVERTERS.get((node.domain, node.op_type))
        # onnxruntime calls its kernel of an operator, and a function of the same name where it has none
        is_call = node.op_identifier() in self._model.functions and node.domain not in KNOWN_DOMAINS
        if converter is None or is_call:
            instead = "" if self._keep_foreign else ": no native code, a session leaves it to onnxruntime"
            raise NotCovered(f" is not covered{instead}")
        for value in filter(None, node.inputs):
            if self._may_be_overridden(value):
                raise NotCovered(f": expected initializer {value.name} to be no graph input, got one")
        conversion = Conversion(node, self._scope.opset_of(node.domain), self._scope)
        try:
            results = converter(conversion)
            check_attributes(conversion)
            self._check_moves(conversion)
        except (NotCovered, UnsupportedModelError, VerifyException) as reason:
            # ops that come to nothing would stay among the users of the values they read
            for op in reversed(conversion.ops):
                op.drop_all_references()
            # a size that nothing here knows contradicts no weight: onnxruntime may take the node, so it can stay
            unknown = isinstance(reason, NotCovered) or (self._keep_foreign and isinstance(reason, VerifyException))
            if unknown:
                kind = next((kind for kind in ERRORS if isinstance(reason, kind)), NotCovered)
                raise kind(f": {reason}{self._advice(reason)}") from reason
            raise
        self._commit(conversion, results)

    def _advice(self, reason: Exception) -> str:
        """Return which options make the node covered; empty where there are none."""
        options = size_options(self._model) if isinstance(reason, UnknownImage) else ""
        return f"; {options} states them" if options else ""

    def _check_moves(self, conversion: Conversion) -> None:
        """Keep a node as it is where values would be moved for nothing: none of its layers can gain.

        Raises:
            NotCovered: it is such a node.
        """
        ops, name = conversion.ops, node_identity(conversion.node)
        moves = len(ops) > 1 and any(isinstance(op, MOVING) and not _keeps_features(op) for op in ops)
        attends = any(isinstance(op, Attention) for op in ops)
        if self._keep_moving and any(isinstance(op, ImageLayerOp) for op in ops):
            # what is only moved to another layout and back gains nothing: it is imported again, as it was
            in_front = self._leaves_front and conversion.node.outputs[0] not in self._behind_sparse
            if not self._has_sparse_convolution or self._whole is None or name in self._whole or in_front:
                raise NotCovered(NO_CONVOLUTION)
            self._expanded.add(name)
            return
        if self._keep_moving and (conversion.node.domain, conversion.node.op_type) in ONE_NODE_NORMALIZATIONS:
            if self._whole is None or name in self._whole:
                raise NotCovered(NO_NETWORK)
            self._expanded.add(name)
            return
        over_edges = any(isinstance(op, AttendEdgesOp) for op in ops)
        if not self._keep_moving or over_edges or not (moves or attends):
            return
        can_gain = attends or _has_sparse_layer(ops)
        if self._whole is None or name in self._whole or not can_gain:
            raise NotCovered(NO_MOVES)
        self._expanded.add(name)

    def _commit(self, conversion: Conversion, results: Sequence[SSAValue]) -> None:
        for key, constant in conversion.constants.items():
            self._scope.keep_constant(key, constant)
            self._block.add_op(constant)
        self._block.add_ops(conversion.ops)
        node = conversion.node
        self._replaced.update(conversion.replaced)
        # a constant may be called otherwise after what was taken of it, as the taps of a window are
        read = (value for one in (node, *conversion.replaced) for value in one.inputs if value is not None)
        self._known_by.update(value.name or "" for value in read if conversion.ops)
        names = {result: output.name or "" for output, result in zip(node.outputs, results, strict=False)}
        key = node_identity(node)
        origin = SymbolRefAttr(key) if not node.name and key in self._expanded else node.name
        for op in conversion.ops:
            set_provenance(op, origin, [names.get(result, "") for result in op.results])
        for output, result in zip(node.outputs, results, strict=False):
            # a reshape that undoes the one before a layer yields what the layer computes, which had no name yet
            name_value(result, output.name or "")
            self._scope.define(output, result)

    def _keep(self, position: int, node: onnx_ir.Node, *, is_shape_value: bool) -> None:
        """Leave the node as it is."""
        reads: dict[str, SSAValue] = {}
        # a shape is known before a layer runs: what it is used for, a mask, say, does not wait for the layer
        is_shape = node.op_type == "Shape" and node.domain == ""
        for value in values_read(node):
            operand = None if is_constant(value, self._model.ir_version) else self._scope.value_of(value)
            if operand is not None:
                reads[value.name or ""] = source_of_shape(node, operand, self._scope) if is_shape else operand
        inferred = [
            self._inferred.get(output.name or "", Inferred(output.type, output.shape)) for output in node.outputs
        ]
        made = made_sizes(Conversion(node, self._scope.opset_of(node.domain), self._scope))
        if made is not None:
            self._scope.learn_names(node.outputs[0], made)
        sizes = [made or self._scope.named_sizes(entry.shape) for entry in inferred]
        types = [pebble_type(entry.kind, known) for entry, known in zip(inferred, sizes, strict=True)]
        op = ForeignOp(operator_text(node), position, reads, types)
        first = self._equal.first_of(node, op, self._scope)
        if first is op:
            set_provenance(op, node.name or "", [output.name or "" for output in node.outputs])
            if any(sizes):
                op.attributes[DIMS] = described_by(sizes)
            codes = stated_codes(Conversion(node, self._scope.opset_of(node.domain), self._scope))
            if codes is not None:
                op.attributes[CODES] = codes
            self._block.add_op(op)
            self._kept[node] = op
        else:
            op.drop_all_references()
            op = first
        for output, result, known in zip(node.outputs, op.results, sizes, strict=True):
            self._scope.define_from_outside(output, result, known)
        if is_shape_value:
            self._shape_ops.append(op)

    def _refuse(self, node: onnx_ir.Node, error: ModelError) -> None:
        """Remember the error: it matters only when something reads the node's outputs as values."""
        for output in node.outputs:
            self._scope.refuse(output, error)

    def _label(self, position: int, node: onnx_ir.Node) -> str:
        name = repr(node.name) if node.name else str(position)
        return f"node {name}: operator {node.op_type} ({node.domain or 'ai.onnx'} {self._scope.opset_of(node.domain)})"

    def finish(self) -> Translated:
        """Return the function with its results, without what nothing reads."""
        results = [self._result(output) for output in self._model.graph.outputs]
        self._check_arguments()
        self._block.add_op(ReturnOp(*results))
        self._drop_unread()
        function = FuncOp(
            "main",
            FunctionType.from_lists([arg.type for arg in self._block.args], [result.type for result in results]),
            Region(self._block),
            arg_attrs=ArrayAttr([_described(value, with_dims=True) for value in self._arguments]),
            res_attrs=ArrayAttr([_described(value, with_dims=False) for value in self._model.graph.outputs]),
        )
        module = ModuleOp([function])
        module.verify()
        constants = [op for op in module.walk() if isinstance(op, ConstantOp | SparseConstantOp)]
        names = frozenset(value_name(op.result) for op in constants) | self._known_by
        return Translated(module, names, frozenset(self._expanded), self._reasons, frozenset(self._waiting))

    def _drop_unread(self) -> None:
        """Drop what nothing reads any more: ops of ours, shapes that are known, and nodes that another one replaces."""
        added = {value.producer() for value in chain(self._masks.values(), *self._angles.values())}
        replaced = (op for node, op in self._kept.items() if node in self._replaced or node in added)
        unneeded = {*self._shape_ops, *replaced}
        for op in reversed(list(self._block.ops)):
            is_size = isinstance(op, ForeignOp) and op.operator.data in ("ai.onnx::Shape", "ai.onnx::Size")
            can_go = op in unneeded or is_size or (not isinstance(op, ForeignOp) and is_trivially_dead(op))
            if can_go and not any(result.uses.get_length() for result in op.results):
                op.detach()
                op.erase()

    def _check_arguments(self) -> None:
        """Refuse an input that no code could take; where a node reads it, the node's refusal came first."""
        for value, argument in zip(self._arguments, self._block.args, strict=True):
            if isinstance(argument.type, ForeignType) and not self._keep_foreign:
                kind = argument.type.description
                raise UnsupportedModelError(f"input {value.name}: expected a float tensor, got {kind}")

    def _result(self, output: onnx_ir.Value) -> SSAValue:
        array = constant_array(output, self._model.ir_version)
        if array is not None and array.dtype == "float32":
            constant = ConstantOp(array.astype("float32", copy=False))
            set_provenance(constant, "", [output.name or ""])
            self._block.add_op(constant)
            return constant.result
        result = self._scope.value_of(output)
        if result is None:
            kind = describe(output.type)
            raise UnsupportedModelError(
                f"expected output {output.name} as a value computed here, got a {kind} that is given"
            )
        return result


def node_identity(node: onnx_ir.Node) -> str:
    """Return a node's name, or that of its first output: many exporters give nodes no names."""
    return node.name or node.outputs[0].name or ""


def _keeps_features(op: Operation) -> bool:
    """Return whether an op is a reshape of rows: nothing is moved, and what undoes it undoes both."""
    if not isinstance(op, ReshapeOp):
        return False
    before, after = shape_of(op.x), shape_of(op.result)
    return bool(before and after) and before[-1] == after[-1] != DYNAMIC


def _has_sparse_layer(ops: Sequence[Operation]) -> bool:
    weights = (op.weight.owner for op in ops if isinstance(op, LinearOp))
    return any(
        _density(weight) < MOSTLY_ZEROS for weight in weights if isinstance(weight, ConstantOp | SparseConstantOp)
    )


def _density(weight: ConstantOp | SparseConstantOp) -> float:
    if isinstance(weight, SparseConstantOp):
        return weight.weight.density
    return np.count_nonzero(weight.array) / max(1, weight.array.size)


def _described(value: onnx_ir.Value, *, with_dims: bool) -> DictionaryAttr:
    attributes: dict[str, Attribute] = {NAME: StringAttr(value.name or "")}
    if with_dims and value.shape is not None:
        attributes[DIMS] = ArrayAttr([StringAttr(word) for word in dimension_names(value.shape)])
    return DictionaryAttr(attributes)
