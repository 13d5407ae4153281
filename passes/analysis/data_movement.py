"""Data movement of a module as it stands: what each op computes, and the bytes that it reads and writes for a batch.

An op outside of tiles reads its operands from memory and writes its results there. A tile reads its rows and writes
them, and what passes between its layers stays in the cache. Weights are read once for each tile of rows; layers outside
run on `ROWS` rows at once. Views, as reshapes are, move nothing.

A free first axis of an input has the size of the batch, any other free axis `LONG`; so has a size of which nothing else
is known.
ONNX nodes that stay as they are count nothing: what they read of constants is not in the IR.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from math import prod
from types import MappingProxyType
from typing import Final

from xdsl.dialects.builtin import ModuleOp, ShapedType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialect.attributes.codes import codes_in
from ...dialect.ops.attention import Attention
from ...dialect.ops.constants import ConstantOp, SparseConstantOp, is_constant
from ...dialect.ops.foreign import ForeignOp
from ...dialect.ops.graphs import AggregateOp, AttendEdgesOp, SortEdgesOp
from ...dialect.ops.image_network import ImageNetworkOp
from ...dialect.ops.images import Conv2dOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import ReshapeOp
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.sparse_network import SparseNetworkOp
from ...dialect.ops.tile import TileOp
from ...dialect.provenance import node_name, texts_of, value_name
from ...dialect.shape_inference import argument_shapes, described_shapes, result_shapes
from ...dialect.symbolic_sizes import DIMS, Size, SymbolicShape
from ...dialect.tensors import is_f32_tensor, shape_of
from ...frontend.multiply_adds import LONG
from ...kernels.tile_widths import WIDTHS, Tiles, tiles_of
from ...sparse.csr import CONNECTION_BYTES

FLOAT32_BYTES: Final = 4
ROWS: Final = WIDTHS[-1]
"""Rows of the tiles of a layer that runs by itself."""

SILENT: Final = (ConstantOp, SparseConstantOp, ReshapeOp, ReturnOp, YieldOp, ForeignOp)
"""Ops that move nothing, or of which not enough is known."""


@dataclass(frozen=True)
class OpMovement:
    """Work of one op for a batch: floating-point operations, and bytes by what they are and where they pass.

    Operations are two for each connection and row, and for each product of an attention; one for each value that any
    other op reads.
    """

    op: Operation
    operations: int
    weight_bytes: int
    """Constants: a stored connection takes `CONNECTION_BYTES`, any other value four bytes."""
    activation_bytes: int
    """Values that come from memory and go there."""
    cached_bytes: int
    """Values that pass between ops of one tile."""
    tiles: tuple[Tiles, ...] = ()
    """Tiles of rows in which the op runs; none outside of tiles, where it runs on all rows at once."""
    rows: int = 1

    @property
    def name(self) -> str:
        """The name of the ONNX node that the op stands for, which may be empty."""
        return node_name(self.op)


Shapes = dict[SSAValue, tuple[int, ...]]


@dataclass(frozen=True)
class FreeSizes:
    """Sizes of free axes by name; an axis that nobody has named yet gets that of the batch, or `LONG`."""

    batch: int
    by_name: dict[str, int] = field(default_factory=dict[str, int])
    by_value: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Shapes of ONNX values, where they follow from those of the inputs in a way that the IR does not know."""

    def numbers(self, shape: SymbolicShape) -> tuple[int, ...]:
        """Return a shape in numbers."""
        return tuple(self._number(size, axis) for axis, size in enumerate(shape))

    def _number(self, size: Size, axis: int) -> int:
        for name, _ in size.powers:
            self.by_name.setdefault(name, LONG if axis else self.batch)
        return size.evaluate(self.by_name)


Lowered = Mapping[SparseNetworkOp, FuncOp]
"""Sparse networks as the functions that they become, on the same arguments."""


def module_movement(module: ModuleOp, free: FreeSizes, lowered: Lowered = MappingProxyType({})) -> list[OpMovement]:
    """Return what the ops of a module's functions move for a batch, in the order of execution.

    Networks that are `lowered` move what their functions do.
    """
    functions = [op for op in module.walk() if isinstance(op, FuncOp) and op.body.blocks]
    return [one for func in functions for one in _function_movement(func, free, lowered)]


def _function_movement(func: FuncOp, free: FreeSizes, lowered: Lowered) -> Iterator[OpMovement]:
    known = argument_shapes(func)
    for argument, attributes in zip(func.args, func.arg_attrs or (), strict=False):
        # arguments of other types than float name sizes, too
        names = () if argument in known else texts_of(attributes.data.get(DIMS))
        free.numbers(tuple(Size.symbol(name) for name in names if not name.isdecimal()))
    arguments = {value: free.numbers(shape) for value, shape in known.items()}
    yield from _block_movement(func.body.block, sizes_in(func.body.block, arguments, free), lowered)


def sizes_in(block: Block, known: Shapes, free: FreeSizes) -> Shapes:
    """Return the shapes of the tensors of a block, those `known` among them; insides of regions are left out."""
    shapes = dict(known)
    symbolic: dict[SSAValue, SymbolicShape] = {value: tuple(map(Size.known, shape)) for value, shape in known.items()}
    for op in block.ops:
        tensors = [result for result in op.results if isinstance(result.type, ShapedType)]
        found: Sequence[SymbolicShape | None] = []
        if isinstance(op, ForeignOp):
            described = dict(zip(op.outputs, described_shapes(op), strict=True))
            found = [described[result] for result in tensors]
        else:
            # a sum of sizes has no name; values of other types have no shape
            with suppress(VerifyException, KeyError):
                found = result_shapes(op, symbolic)
        for result, shape in zip_longest(tensors, found):
            told = free.by_value.get(value_name(result), ()) if shape is None or isinstance(op, ForeignOp) else ()
            shapes[result] = told or free.numbers(shape or ())
            symbolic[result] = tuple(map(Size.known, shapes[result]))
    return shapes


def _block_movement(block: Block, shapes: Shapes, lowered: Lowered) -> Iterator[OpMovement]:
    """Yield what the ops of a block move, whose values outside of regions have these shapes."""
    for op in block.ops:
        if isinstance(op, TileOp):
            yield from _tile_movement(op, shapes)
        elif isinstance(op, SparseNetworkOp):
            body = lowered[op].body.block if op in lowered else op.body.block
            inside = dict(zip(body.args, (shapes[value] for value in op.inputs), strict=True))
            # its axes have numbers by now
            yield from _block_movement(body, sizes_in(body, shapes | inside, FreeSizes(1)), lowered)
        elif isinstance(op, ImageNetworkOp):
            yield from _image_movement(op, shapes)
        elif not isinstance(op, SILENT):
            yield _op_movement(op, shapes)


def _op_movement(op: Operation, shapes: Shapes) -> OpMovement:
    """Return what an op moves that runs by itself."""
    read = [value for value in dict.fromkeys(op.operands) if not is_constant(value)]
    moved = sum(_bytes(value, shapes) for value in (*read, *op.results))
    rows = _pixels(op, shapes) if isinstance(op, Conv2dOp) else prod(shapes.get(op.results[0], ())[:-1])
    times = -(-rows // ROWS) if isinstance(op, LinearOp) else 1
    return OpMovement(op, _operations(op, shapes), times * constant_bytes(op), moved, 0, rows=rows)


def _tile_movement(tile: TileOp, shapes: Shapes) -> Iterator[OpMovement]:
    """Yield what the ops of a tile move: rows enter with their first readers, and leave with what makes them."""
    rows = prod(shapes.get(tile.inputs[0], ())[:-1])
    used, block = tuple(tiles_of(tile.schedule.least_rows, rows)), tile.body.block
    inside: Shapes = {value: (rows, _features(value)) for op in block.ops for value in op.results}
    inside |= {argument: (rows, _features(argument)) for argument in block.args}
    for one in _together(block, shapes | inside, tile.yielded):
        weight_bytes = constant_bytes(one.op) * sum(each.number for each in used)
        yield replace(one, weight_bytes=weight_bytes, tiles=used, rows=rows)


def _image_movement(network: ImageNetworkOp, shapes: Shapes) -> Iterator[OpMovement]:
    """Yield what the layers of an image network move: images enter with their first readers, as rows do a tile."""
    block = network.body.block
    known = shapes | dict(zip(block.args, (shapes[value] for value in network.inputs), strict=True))
    yield from _together(block, known | sizes_in(block, known, FreeSizes(1)), network.yielded)


def _together(block: Block, shapes: Shapes, yielded: Sequence[SSAValue]) -> Iterator[OpMovement]:
    """Yield what ops of a block move whose values stay in the cache between them."""
    entering: dict[SSAValue, int] = {argument: _bytes(argument, shapes) for argument in block.args}
    leaving = {value: _bytes(value, shapes) for value in yielded}
    for op in block.ops:
        if isinstance(op, SILENT):
            continue
        one = _op_movement(op, shapes)
        outside = sum(entering.pop(value, 0) for value in dict.fromkeys(op.operands))
        outside += sum(leaving.get(value, 0) for value in op.results)
        yield replace(one, activation_bytes=outside, cached_bytes=one.activation_bytes - outside)


def _features(value: SSAValue) -> int:
    return shape_of(value)[-1]


def _bytes(value: SSAValue, shapes: Shapes) -> int:
    if isinstance(value.owner, SortEdgesOp):
        value = value.owner.weights
    size = 1 if codes_in(value.type) is not None else FLOAT32_BYTES if is_f32_tensor(value.type) else 0
    return size * prod(shapes[value]) if value in shapes else 0


def constant_bytes(op: Operation) -> int:
    """Return the bytes of the constants that an op reads, each once."""
    owners = dict.fromkeys(value.owner for value in op.operands)
    sparse = sum(len(owner.values) for owner in owners if isinstance(owner, SparseConstantOp))
    dense = sum(prod(owner.array.shape) for owner in owners if isinstance(owner, ConstantOp))
    return CONNECTION_BYTES * sparse + FLOAT32_BYTES * dense


def _operations(op: Operation, shapes: Mapping[SSAValue, tuple[int, ...]]) -> int:
    match op:
        case LinearOp():
            return 2 * _entries(op.weight) * prod(shapes.get(op.results[0], ())[:-1])
        case Conv2dOp():
            return 2 * _entries(op.weight) * _pixels(op, shapes)
        case AggregateOp(of_call=False):
            features = shapes.get(op.x, (0,))
            return 2 * len(op.edges.values) * features[-1] * prod(features[:-2])
        case AttendEdgesOp(of_call=False):
            # the scores twice, for the largest one and for the weights
            features, heads = shapes.get(op.x, (0, 0))[-1], op.heads.value.data
            return len(op.edges.values) * (2 * features + 6 * heads)
        case Attention():
            queries, keys, values = (shapes.get(value, ()) for value in (op.q, op.k, op.v))
            if not (queries and keys and values):
                return 0
            kept = values[-1] * op.heads.value.data // op.kv_heads.value.data
            past = shapes.get(op.past[0], (0, 0, 0))[2] if op.past else 0
            return 2 * prod(queries[:-1]) * (keys[1] + past) * (queries[-1] + kept)
        case _:
            dynamic = [value for value in dict.fromkeys(op.operands) if not is_constant(value)]
            return sum(prod(shapes.get(value, ())) for value in dynamic)


def _entries(weight: SSAValue) -> int:
    """Return the connections that are stored of a weight."""
    owner = weight.owner
    return len(owner.values) if isinstance(owner, SparseConstantOp) else prod(shape_of(weight))


def _pixels(op: Conv2dOp, shapes: Mapping[SSAValue, tuple[int, ...]]) -> int:
    """Return the pixels of all images that a convolution makes."""
    return prod(size for axis, size in enumerate(shapes.get(op.results[0], ())) if axis != 1)
