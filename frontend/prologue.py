"""Cuts the prologue off a module: nodes that the dialect has no ops for, where no layer comes before any of them.

```mlir
%e = pebble.foreign "ai.onnx::Gather" at 0 reads %ids as ["ids"] : ...     a step of the prologue
%y = pebble.linear %e, %w : ...                                            reads an argument in its place
```

Shapes of values behind a layer are known before the layer has run, from the shapes of its operands:

```mlir
%h = pebble.linear %x, %w : ...                          // [batch, sequence, 128]
%s = pebble.foreign "ai.onnx::Shape" at 7 reads %h       // batch and sequence are sizes of the ids
```
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import onnx_ir
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from ..dialect.attributes.codes import codes_in
from ..dialect.ops.constants import ConstantOp
from ..dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, SubOp
from ..dialect.ops.foreign import ForeignOp, ForeignType
from ..dialect.ops.graphs import EdgeListOp, is_index_tensor
from ..dialect.ops.movement import ConcatOp, ReshapeOp, SplitOp, TransposeOp
from ..dialect.provenance import node_key, node_name, texts_of, value_name
from ..dialect.semantics.array_operators import OPERATORS
from ..dialect.semantics.prologue import Prologue, PrologueInput, PrologueStep
from ..dialect.shape_inference import argument_shapes, described_shapes, result_shapes
from ..dialect.symbolic_sizes import DIMS, NAME, Size, SymbolicShape
from ..dialect.tensors import is_f32_tensor, shape_of
from ..foundation.tensor_types import DTYPES
from .errors import CodesError, UnknownSizesError, UnsupportedModelError
from .folding.known_constants import constant_array
from .folding.known_sizes import broadcast_sizes
from .import_model import Imported
from .operators.quantized import YIELDS_CODES
from .translation import node_identity

SIZES = "Sizes"
"""The operator of such a step: the sizes of a shape by those of the arrays that it reads."""


ARITHMETIC: Final[dict[type[Operation], str]] = {AddOp: "Add", SubOp: "Sub", MulOp: "Mul", DivOp: "Div"}

HELD: Final = (ForeignOp, ConstantOp, *ARITHMETIC, ActivateOp, ReshapeOp, TransposeOp, ConcatOp, SplitOp)
"""Ops that a prologue can hold."""


@dataclass(frozen=True)
class KnownShape:
    """The shape of a value by those of arguments and results of nodes, as a step of a prologue states it."""

    sources: tuple[SSAValue, ...]
    attributes: Mapping[str, Any]


class KnownBefore(NamedTuple):
    """Facts of a function that its prologue needs."""

    shapes: dict[Operation, KnownShape]
    """Shapes that nodes `Shape` ask for of values that no node of ONNX yields, and those of nodes of graphs."""
    broadcasts: set[Operation]
    """Arithmetic on what is there before all layers, of sizes that may be 1 in one call and not in another."""


def known_before(func: FuncOp) -> KnownBefore:
    """Return what a prologue needs to know of its function."""
    found: dict[Operation, KnownShape] = {}
    early, broadcasts = set[SSAValue](func.args), set[Operation]()
    shapes, places = argument_shapes(func), _argument_places(func)
    for op in func.body.block.ops:
        if isinstance(op, EdgeListOp):
            known = _known(shapes.get(op.nodes), places)
            if known is not None:
                found[op] = known
        if (
            isinstance(op, AddOp | SubOp | MulOp | DivOp)
            and early.issuperset(op.operands)
            and shapes.keys() >= {*op.operands}
        ):
            left, right = (shapes[operand] for operand in op.operands)
            broadcasts |= {op} if broadcast_sizes(left, right) is None else set()
        if isinstance(op, ForeignOp):
            if op.operator.data == "ai.onnx::Shape" and op.reads and not isinstance(op.reads[0].owner, ForeignOp):
                known = _known(shapes.get(op.reads[0]), places) if op.reads[0] not in func.args else None
                if known is not None:
                    found[op] = known
            for result, described in zip(op.results, described_shapes(op), strict=True):
                if described is not None and is_f32_tensor(result.type):
                    shapes[result] = described
                    _note(places, result, described)
        if isinstance(op, HELD) and (op in found or early.issuperset(op.operands)):
            early.update(op.results)
        if isinstance(op, ForeignOp):
            continue
        try:
            shapes.update(zip(op.results, result_shapes(op, shapes), strict=False))
        except (KeyError, VerifyException):
            continue  # behind a node of unknown rank, or a sum that has no name
    return KnownBefore(found, broadcasts)


Places = dict[str, tuple[SSAValue, int]]
"""A value and an axis of it whose size has this name."""


def _argument_places(func: FuncOp) -> Places:
    places: Places = {}
    for index, argument in enumerate(func.args):
        words = texts_of(func.arg_attrs.data[index].data.get(DIMS)) if func.arg_attrs is not None else ()
        _note(places, argument, tuple(Size.symbol(word or f"%{index}.{axis}") for axis, word in enumerate(words)))
    return places


def _note(places: Places, value: SSAValue, shape: SymbolicShape) -> None:
    for axis, size in enumerate(shape):
        if size == Size.symbol(str(size)):
            places.setdefault(str(size), (value, axis))


def _known(shape: SymbolicShape | None, places: Places) -> KnownShape | None:
    """Return a shape by sizes of values; None where one of its sizes is of none."""
    names = sorted({name for size in shape or () for name, _ in size.powers})
    if shape is None or any(name not in places for name in names):
        return None
    sizes = [[size.coefficient.numerator, size.coefficient.denominator, dict(size.powers)] for size in shape]
    axes = {name: [number, places[name][1]] for number, name in enumerate(names)}
    return KnownShape(tuple(places[name][0] for name in names), {"sizes": sizes, "axes": axes})


Array = NDArray[Any]


def cut_prologue(imported: Imported) -> Prologue | None:
    """Return the prologue of a module, whose function begins behind it from then on; None where it needs none.

    Raises:
        UnsupportedModelError: a node cannot be part of it.
    """
    func = next(op for op in imported.module.body.block.ops if isinstance(op, FuncOp))
    known = known_before(func)
    before = _before(func, known)
    if not before:
        return None
    cut = _Cut(imported, func, before, known.shapes)
    return cut.prologue()


def _before(func: FuncOp, known: KnownBefore) -> list[Operation]:
    """Return the nodes of ONNX in a function and all that they read, in order."""
    wanted, shapes = set(known.broadcasts), known.shapes
    for op in reversed(list(func.body.block.ops)):
        if isinstance(op, ForeignOp | EdgeListOp) or op in wanted:
            wanted.add(op)
            reads = (*shapes[op].sources, *_edge_ends(op)) if op in shapes else op.operands
            wanted.update(value.owner for value in reads if isinstance(value.owner, Operation))
    return [op for op in func.body.block.ops if op in wanted]


def _edge_ends(op: Operation) -> Sequence[SSAValue]:
    """Return what edges are made of; of the nodes only the size is read."""
    return op.operands[1:] if isinstance(op, EdgeListOp) else ()


class _Cut:
    """A function, and its ops that become the prologue."""

    def __init__(
        self,
        imported: Imported,
        func: FuncOp,
        before: Sequence[Operation],
        shapes: Mapping[Operation, KnownShape],
    ) -> None:
        self.func, self.before, self.shapes = func, before, shapes
        self.nodes = list(imported.model.graph)
        self.version = imported.model.ir_version
        self.constants: dict[str, Array] = {}
        self.names: dict[SSAValue, str] = {}
        self.reasons, self.waiting = imported.reasons, imported.waiting
        self.opsets = imported.model.opset_imports

    def prologue(self) -> Prologue:
        """Return the prologue, and cut it off."""
        block, attributes = self.func.body.block, _argument_attributes(self.func)
        inputs = tuple(_input(value, entry) for value, entry in zip(block.args, attributes, strict=True))
        self.names.update((value, entry.name) for value, entry in zip(block.args, inputs, strict=True))
        steps = tuple(step for op in self.before for step in self._steps(op))
        crossing = list(self._crossing())
        arguments = [value for value in block.args if self._is_read(value)]
        results = tuple(self.names[value] for value in (*arguments, *crossing))
        self._detach(crossing, attributes)
        return Prologue(inputs, steps, results, self.constants)

    def _is_read(self, value: SSAValue) -> bool:
        return any(use.operation not in self.before for use in value.uses)

    def _crossing(self) -> Iterator[SSAValue]:
        """Yield what later ops read, constants left out.

        Raises:
            UnsupportedModelError: it is returned, or no float tensor.
        """
        for op in self.before:
            for value in op.results:
                readers = [use.operation for use in value.uses if use.operation not in self.before]
                if not readers or isinstance(op, ConstantOp):
                    continue
                if any(isinstance(reader, ReturnOp) for reader in readers) or not (
                    is_f32_tensor(value.type) or is_index_tensor(value.type)
                ):
                    raise self._refusal(op)
                yield value

    def _refusal(self, op: Operation) -> UnsupportedModelError:
        """Return the error for an op that the prologue cannot hold."""
        foreign = op if isinstance(op, ForeignOp) else _first_reader(op, self.before)
        if foreign is None:
            return UnsupportedModelError(f"node {node_key(op)!r} comes before a node that is not covered")
        node = self.nodes[foreign.position.value.data]
        position = foreign.position.value.data
        reason = self.reasons.get(position, "")
        name = node_key(op)
        behind = f" behind node {name!r}" if name and foreign is not op else ""
        if reason in ("", "is not covered"):
            reason = "no native code, a session leaves it to onnxruntime"
        usual = UnknownSizesError if position in self.waiting else UnsupportedModelError
        kind = CodesError if reason == YIELDS_CODES else usual
        return kind(f"{self._label(node)}{behind}: {reason}")

    def _label(self, node: onnx_ir.Node) -> str:
        version = self.opsets.get(node.domain, 1)
        return f"node {node_identity(node)!r}: operator {node.op_type} ({node.domain or 'ai.onnx'} {version})"

    def _steps(self, op: Operation) -> Iterator[PrologueStep]:
        """Yield what an op is in the prologue.

        Raises:
            UnsupportedModelError: it cannot be part of it.
        """
        outputs = tuple(self.names.setdefault(value, self._new_name(value)) for value in op.results)
        match op:
            case ForeignOp() if op in self.shapes:
                known = self.shapes[op]
                inputs = tuple(self.names[value] for value in known.sources)
                attributes = dict(known.attributes) | self._numbers_of(op)
                yield PrologueStep(node_name(op), SIZES, inputs, outputs, attributes)
            case EdgeListOp() if op in self.shapes:
                known, sizes = self.shapes[op], f"{outputs[0]}.nodes"
                inputs = tuple(self.names[value] for value in known.sources)
                yield PrologueStep(node_name(op), SIZES, inputs, (sizes,), known.attributes)
                ends = tuple(self.names[value] for value in _edge_ends(op))
                yield PrologueStep(node_name(op), "EdgeList", (sizes, *ends), outputs, {})
            case ForeignOp():
                yield self._node(op, outputs)
            case ConstantOp():
                self.constants[outputs[0]] = op.array
            case ReshapeOp():
                yield self._step(op, "ReshapeTo", {"target": list(op.target.entries)}, outputs)
            case TransposeOp():
                yield self._step(op, "Transpose", {"perm": list(op.order)}, outputs)
            case ActivateOp():
                attributes = {"activation": op.activation.kind, "parameters": list(op.activation.values)}
                yield self._step(op, "Activate", attributes, outputs)
            case ConcatOp():
                yield self._step(op, "Concat", {"axis": op.axis.value.data}, outputs)
            case SplitOp():
                axis = op.axis.value.data
                sizes = [shape_of(part)[axis] for part in op.parts]
                yield self._step(op, "Split", {"axis": axis, "split": sizes}, outputs)
            case AddOp() | SubOp() | MulOp() | DivOp():
                yield self._step(op, ARITHMETIC[type(op)], {}, outputs)
            case _:
                raise self._refusal(op)

    def _new_name(self, value: SSAValue) -> str:
        name = value_name(value)
        return name if name and name not in self.names.values() else f"%{len(self.names)}"

    def _step(self, op: Operation, name: str, attributes: dict[str, Any], outputs: tuple[str, ...]) -> PrologueStep:
        inputs = tuple(self.names[value] for value in op.operands)
        return PrologueStep(node_name(op), name, inputs, outputs, attributes)

    def _node(self, op: ForeignOp, outputs: tuple[str, ...]) -> PrologueStep:
        node, domain = self.nodes[op.position.value.data], op.operator.data.split("::")[0]
        if domain != "ai.onnx" or node.op_type not in OPERATORS:
            raise self._refusal(op)
        reads = {name.data: value for name, value in zip(op.names, op.reads, strict=True)}
        inputs: list[str] = []
        for value in node.inputs:
            if value is None or value.name in reads:
                inputs.append("" if value is None else self.names[reads[value.name or ""]])
                continue
            array = constant_array(value, self.version)
            if array is None:
                raise self._refusal(op)
            self.constants[f"={value.name}"] = array
            inputs.append(f"={value.name}")
        attributes = {"outputs": len(outputs)} if node.op_type == "Split" else {}
        attributes |= self._numbers_of(op)
        return PrologueStep(node.name or "", node.op_type, tuple(inputs), outputs, attributes)

    def _numbers_of(self, op: ForeignOp) -> dict[str, Any]:
        """Return the attributes of a node."""
        node = self.nodes[op.position.value.data]
        return dict(chain.from_iterable(_attribute(node, *entry).items() for entry in node.attributes.items()))

    def _detach(self, crossing: Sequence[SSAValue], attributes: Sequence[DictionaryAttr]) -> None:
        """Let the function begin with what crosses, and without the arguments that nothing reads any more."""
        block = self.func.body.block
        kept = [(value, entry) for value, entry in zip(block.args, attributes, strict=True) if self._is_read(value)]
        entries = [entry for _, entry in kept]
        for value in crossing:
            argument = block.insert_arg(value.type, len(block.args))
            value.replace_uses_with_if(argument, lambda use: use.operation not in self.before)
            argument.name_hint = value.name_hint
            entries.append(DictionaryAttr({NAME: StringAttr(self.names[value]), DIMS: _dims(value)}))
        for op in reversed(self.before):
            if not any(result.uses.get_length() for result in op.results):
                op.detach()
                op.erase()
        first = len(attributes)
        for value in list(block.args[:first]):
            if not value.uses.get_length():
                block.erase_arg(value)
        self.func.function_type = FunctionType.from_lists(
            [value.type for value in block.args], list(self.func.function_type.outputs)
        )
        self.func.arg_attrs = ArrayAttr(entries)


def _first_reader(op: Operation, ops: Sequence[Operation]) -> ForeignOp | None:
    """Return the first node of ONNX among ops, in order, that reads what comes of an op, or None."""
    reached = {op}
    for other in ops:
        if any(value.owner in reached for value in other.operands):
            reached.add(other)
            if isinstance(other, ForeignOp):
                return other
    return None


def _argument_attributes(func: FuncOp) -> list[DictionaryAttr]:
    known = list(func.arg_attrs) if func.arg_attrs is not None else []
    return known or [DictionaryAttr({}) for _ in func.args]


def _input(value: SSAValue, attributes: DictionaryAttr) -> PrologueInput:
    """Return the input of the model that an argument is.

    Raises:
        UnsupportedModelError: it holds something else than numbers.
    """
    name = attributes.data.get(NAME)
    text = name.data if isinstance(name, StringAttr) else ""
    kind = value.type.description if isinstance(value.type, ForeignType) else _tensor_kind(value.type)
    if kind not in DTYPES:
        accepted = ", ".join(DTYPES)
        raise UnsupportedModelError(f"input {text}: expected {accepted}, got {kind}")
    return PrologueInput(text, DTYPES[kind], _sizes(text, texts_of(attributes.data.get(DIMS))))


def _tensor_kind(kind: Attribute) -> str:
    codes = codes_in(kind)
    return "tensor(float)" if codes is None else {"u8": "tensor(uint8)", "s8": "tensor(int8)"}[codes.kind]


def _sizes(name: str, words: Sequence[str]) -> SymbolicShape:
    return tuple(
        Size.known(int(word)) if word.isdecimal() else Size.symbol(word or f"{name}.{axis}")
        for axis, word in enumerate(words)
    )


def _dims(value: SSAValue) -> Attribute:
    """Return the names of sizes that a node of ONNX carries for one of its results, else none."""
    op = value.owner
    known = op.attributes.get(DIMS) if isinstance(op, ForeignOp | EdgeListOp) else None
    entries = list(known.data) if isa(known, ArrayAttr[Attribute]) else []
    index = value.index if isinstance(value, OpResult) else 0
    return entries[index] if index < len(entries) else ArrayAttr([])


def _attribute(node: onnx_ir.Node, name: str, attribute: onnx_ir.Attr) -> dict[str, Any]:
    """Return an attribute as json holds it; a dtype by its name.

    Raises:
        UnsupportedModelError: it is something else.
    """
    if node.op_type == "Cast" and name == "to":
        return {"to": onnx_ir.DataType(attribute.as_int()).numpy().name}
    match attribute.type:
        case onnx_ir.AttributeType.INT:
            return {name: attribute.as_int()}
        case onnx_ir.AttributeType.FLOAT:
            return {name: attribute.as_float()}
        case onnx_ir.AttributeType.INTS:
            return {name: [int(one) for one in attribute.as_ints()]}
        case onnx_ir.AttributeType.STRING:
            return {name: attribute.as_string()}
        case onnx_ir.AttributeType.TENSOR:
            array = attribute.as_tensor().numpy()
            if array.size == 1:
                return {name: array.reshape(-1)[0].item(), "dtype": array.dtype.name}
        case _:
            pass
    raise UnsupportedModelError(f"node {node.name!r}: attribute {name} of {node.op_type} is not covered here")
