"""Small pieces of a rank's work, and how those between two messages become one function of its module."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, IntAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from redpebble.dialect.attributes.io_bounds_and_schedules import ScheduleAttr
from redpebble.dialect.attributes.kernels import LayoutAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.regions import YieldOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.symbolic_sizes import NAME
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.distributed.native.block_layout import HEIGHT, LAYOUT


@dataclass(frozen=True)
class Key:
    """Some features of a value, as far as a rank has them.

    `kind` is `own`, `inner` and `border` (the own ones that need no received feature, and the others), `received`,
    `near` (own and received ones), `whole`, `zeros`, `input` or `output`.
    """

    kind: str
    number: int
    """Of the value; of the port for inputs and outputs."""

    @property
    def is_row_major(self) -> bool:
        """Whether it is an input or output of the network as the caller sees it."""
        return self.kind in ("input", "output")


class View(NamedTuple):
    """Where features lie: rows of a value's buffer, which holds own features, then received ones."""

    buffer: Key
    first: int
    features: int
    height: int
    """Features of the whole buffer."""


@dataclass(frozen=True)
class Piece:
    """Ops that compute `writes` from `reads`; `emit` gets the values of `reads` and returns the ops, and the results.

    The ops are constants, which go before the tile, and row-wise ops on [samples, features].
    """

    reads: tuple[Key, ...]
    writes: tuple[Key, ...]
    emit: Callable[[Sequence[SSAValue]], tuple[Sequence[Operation], Sequence[SSAValue]]]


@dataclass(frozen=True)
class Exchange:
    """Rows of a value leave or arrive; what comes before must be done, what comes after may wait for it."""

    key: Key
    is_send: bool


@dataclass(frozen=True)
class Break:
    """What comes after reads from buffers what came before it."""


def build_function(
    name: str, pieces: Sequence[Piece], ports: tuple[Sequence[Key], Sequence[Key]], views: Mapping[Key, View]
) -> FuncOp:
    """Return the function `name` of the arguments and results `ports` that runs `pieces` one after the other."""
    arguments, results = ports
    types = [f32_tensor((DYNAMIC, views[key].features)) for key in arguments]
    block, inside = Block(arg_types=types), Block(arg_types=types)
    values: dict[Key, SSAValue] = dict(zip(arguments, inside.args, strict=True))
    for piece in pieces:
        ops, written = piece.emit([values[key] for key in piece.reads])
        for op in ops:
            (block if isinstance(op, ConstantOp | SparseConstantOp) else inside).add_op(op)
        values |= dict(zip(piece.writes, written, strict=True))
    inside.add_op(YieldOp([values[key] for key in results]))
    result_types: list[Attribute] = [f32_tensor((DYNAMIC, views[key].features)) for key in results]
    schedule = ScheduleAttr.of("layer_by_layer", (64,))
    tile = TileOp(list(block.args), [(0, result) for result in result_types], schedule, Region(inside))
    block.add_ops([tile, ReturnOp(*tile.outputs)])
    function_type = FunctionType.from_lists(types, result_types)
    return FuncOp(
        name, function_type, Region(block), arg_attrs=_places(arguments, views), res_attrs=_places(results, views)
    )


def _places(keys: Sequence[Key], views: Mapping[Key, View]) -> ArrayAttr[DictionaryAttr]:
    """Return the attributes that say which arguments or results lie in blocks of how many features, and their names."""
    entries: list[DictionaryAttr] = []
    for key in keys:
        attributes: dict[str, Attribute] = {NAME: StringAttr(f"{key.kind}{key.number}")}
        if not key.is_row_major:
            attributes[LAYOUT] = LayoutAttr.of("feature_major")
            attributes[HEIGHT] = IntAttr(views[key].height)
        entries.append(DictionaryAttr(attributes))
    return ArrayAttr(entries)


@dataclass(frozen=True)
class Segment:
    """Pieces between two exchanges."""

    pieces: tuple[Piece, ...]

    @property
    def reads(self) -> tuple[Key, ...]:
        """What comes from outside, each once."""
        known: set[Key] = set()
        outside: dict[Key, None] = {}
        for piece in self.pieces:
            outside |= dict.fromkeys(key for key in piece.reads if key not in known)
            known |= set(piece.writes)
        return tuple(outside)

    @property
    def writes(self) -> tuple[Key, ...]:
        """What it computes."""
        return tuple(key for piece in self.pieces for key in piece.writes)
