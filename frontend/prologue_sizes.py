"""Shapes of values behind a layer, which a prologue knows before the layer has run: from those of what it reads.

```mlir
%h = pebble.linear %x, %w : ...                          // [batch, sequence, 128]
%s = pebble.foreign "ai.onnx::Shape" at 7 reads %h       // batch and sequence are sizes of the ids
```
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ..dialect.ops.constants import ConstantOp
from ..dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, SubOp
from ..dialect.ops.foreign import ForeignOp
from ..dialect.ops.graphs.edges_of_call import EdgeListOp
from ..dialect.ops.movement import ConcatOp, ReshapeOp, SplitOp, TransposeOp
from ..dialect.provenance import texts_of
from ..dialect.shape_inference import argument_shapes, described_shapes, result_shapes
from ..dialect.symbolic_sizes import DIMS, Size, SymbolicShape
from ..dialect.tensors import is_f32_tensor
from .folding.known_sizes import broadcast_sizes

SIZES = "Sizes"
"""The operator of such a step: the sizes of a shape by those of the arrays that it reads."""


ARITHMETIC: Final = (AddOp, SubOp, MulOp, DivOp)

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
        if isinstance(op, ARITHMETIC) and early.issuperset(op.operands) and shapes.keys() >= {*op.operands}:
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
