"""The computations of a rank, and how those between two messages become one function of its module."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, IntAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from ...dialect.attributes.codes import CodesAttr, code_tensor
from ...dialect.attributes.schedule import ScheduleAttr
from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.tile import TileOp
from ...dialect.symbolic_sizes import NAME
from ...dialect.tensors import DYNAMIC, f32_tensor
from ..native.block_layout import HEIGHT


@dataclass(frozen=True)
class Key:
    """Some features of a value, as far as a rank has them.

    `kind` is `own`, `inner` and `border` (the own ones that need no received feature, and the others), `received`,
    `near` (own and received ones), `whole`, `zeros`, `input` or `output`.
    """

    kind: str
    number: int
    """The number of the value, or of the port for inputs and outputs."""

    @property
    def is_row_major(self) -> bool:
        """Whether it is an input or output of the network as the caller sees it."""
        return self.kind in ("input", "output")


class View(NamedTuple):
    """View of features: rows of a value's buffer, which holds own features, then received ones."""

    buffer: Key
    first: int
    features: int
    height: int
    """Features of the whole buffer."""
    codes: CodesAttr | None = None
    """Codes that the values are, None of floats."""

    @property
    def type(self) -> Attribute:
        """The type of the features in a function."""
        shape = (DYNAMIC, self.features)
        return f32_tensor(shape) if self.codes is None else code_tensor(self.codes, shape)


@dataclass(frozen=True)
class Computation:
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
class FunctionEnd:
    """The end of a function: the computations behind it read from buffers what those before it have written."""


@dataclass(frozen=True)
class RankFunction:
    """The computations between two exchanges, one after the other."""

    computations: tuple[Computation, ...]

    @property
    def reads(self) -> tuple[Key, ...]:
        """Arguments: values from outside, each once."""
        known: set[Key] = set()
        outside: dict[Key, None] = {}
        for one in self.computations:
            outside |= dict.fromkeys(key for key in one.reads if key not in known)
            known |= set(one.writes)
        return tuple(outside)

    @property
    def writes(self) -> tuple[Key, ...]:
        """Ops of the function; the results are those of them that are read later."""
        return tuple(key for one in self.computations for key in one.writes)


def build_function(name: str, function: RankFunction, results: Sequence[Key], views: Mapping[Key, View]) -> FuncOp:
    """Return the op of a function that returns `results`."""
    arguments = function.reads
    types = [views[key].type for key in arguments]
    block, inside = Block(arg_types=types), Block(arg_types=types)
    values: dict[Key, SSAValue] = dict(zip(arguments, inside.args, strict=True))
    for one in function.computations:
        ops, written = one.emit([values[key] for key in one.reads])
        for op in ops:
            (block if isinstance(op, ConstantOp | SparseConstantOp) else inside).add_op(op)
        values |= dict(zip(one.writes, written, strict=True))
    inside.add_op(YieldOp([values[key] for key in results]))
    result_types: list[Attribute] = [views[key].type for key in results]
    schedule = ScheduleAttr((64,))
    tile = TileOp(list(block.args), [(0, result) for result in result_types], schedule, Region(inside))
    block.add_ops([tile, ReturnOp(*tile.outputs)])
    function_type = FunctionType.from_lists(types, result_types)
    return FuncOp(
        name, function_type, Region(block), arg_attrs=_layouts(arguments, views), res_attrs=_layouts(results, views)
    )


def _layouts(keys: Sequence[Key], views: Mapping[Key, View]) -> ArrayAttr[DictionaryAttr]:
    """Return the attributes that say which arguments or results lie in blocks of how many features, and their names."""
    entries: list[DictionaryAttr] = []
    for key in keys:
        attributes: dict[str, Attribute] = {NAME: StringAttr(f"{key.kind}{key.number}")}
        if not key.is_row_major:
            attributes[HEIGHT] = IntAttr(views[key].height)
        entries.append(DictionaryAttr(attributes))
    return ArrayAttr(entries)
