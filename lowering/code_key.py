"""All that code depends on: a text that is the same for networks, or tiles, that differ only in weights.

Constants count by their shapes, kernels by their families, borders of shares by which of them are equal, times by the
least rows of a tile that follow from them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from ..dialect.ops.constants import ConstantOp, SparseConstantOp, is_constant
from ..dialect.ops.foreign import INTEGERS
from ..dialect.ops.graphs import OverEdgesOp
from ..dialect.ops.layers import LinearOp
from ..dialect.ops.tile import TileOp, chain_in
from ..dialect.shape_inference import symbolic_shapes
from ..dialect.tensors import shape_of
from .graphs.packing import block_count
from .tiles.thread_shares import Borders, even_borders
from .tiles.tile_loop import same_from

REASONS: Final = ("order", "target_walk")
"""Properties of sums over edges that say why something was chosen."""


def code_key(module: ModuleOp) -> str | None:
    """Return all of a module that its code depends on; None where that includes the weights, as in depth-first code.

    Modules of one key have the same LLVM IR.
    """
    func = next(op for op in module.body.block.ops if isinstance(op, FuncOp))
    shapes, ops = symbolic_shapes(func), list(func.walk())
    text = _text(ops)
    return None if text is None else f"{[shapes[value] for value in func.args]}\n{text}"


def tile_key(tile: TileOp) -> str | None:
    """Return the same of the code of a tile, but for where its operands, results and constants lie."""
    return _text(ops_of_tile(tile))


def ops_of_tile(tile: TileOp) -> list[Operation]:
    """Return the ops of a tile, itself included, and before each one the constants from outside that it uses."""
    found: dict[Operation, None] = {}
    for op in tile.walk():
        found |= {
            value.owner: None for value in op.operands if is_constant(value) and isinstance(value.owner, Operation)
        }
        found[op] = None
    return list(found)


def _text(ops: Sequence[Operation]) -> str | None:
    key = _Key(dict.fromkeys(_even_borders(ops)))
    for op in ops:
        holds_weights = isinstance(op, TileOp) and (op.depth_first is not None or op.dead_rows is not None)
        if holds_weights:
            return None
        key.add(op)
    return "\n".join(key.lines)


def _even_borders(ops: Iterable[Operation]) -> list[Borders]:
    """Return the borders that follow from shapes: those of a layer may be equal to them."""
    shares, features = set[int](), set[int]()
    for op in ops:
        shares |= {op.schedule.shares} if isinstance(op, TileOp) else set()
        values = [value for value in (*op.operands, *op.results) if value.type not in INTEGERS]
        features |= {(shape_of(value) or (1,))[-1] for value in values}
    return [even_borders(one, count) for count in sorted(shares) for one in sorted(features) if one > 0]


class _Key:
    """The lines of a key, one an op."""

    def __init__(self, borders: dict[Borders, None]) -> None:
        self.lines: list[str] = []
        self._borders = borders
        self._numbers: dict[SSAValue, int] = {}

    def add(self, op: Operation) -> None:
        """Add an op, its operands by number."""
        operands = [self._numbers.setdefault(value, len(self._numbers)) for value in op.operands]
        arguments = [value for region in op.regions for block in region.blocks for value in block.args]
        for value in (*op.results, *arguments):
            self._numbers[value] = len(self._numbers)
        stored = isinstance(op, ConstantOp | SparseConstantOp)
        types = [str(shape_of(value) if stored else value.type) for value in (*op.results, *arguments)]
        self.lines.append(repr((op.name, operands, types, self._properties(op))))

    def _properties(self, op: Operation) -> Sequence[object]:
        match op:
            case ConstantOp() | SparseConstantOp() | FuncOp():
                return ()
            case TileOp() if chain_in(op) is not None:
                return (str(op.rows_of), op.schedule.shares)
            case TileOp():
                schedule = op.schedule
                shared = sorted(schedule.shared)
                return (str(op.rows_of), schedule.shares, shared, schedule.least_rows, same_from(op))
            case LinearOp():
                kernel = None if op.kernel is None else op.kernel.choices
                blocks = [] if op.kernel is None or op.times is None else sorted(op.kernel.blocks.items())
                return (str(op.activation), str(op.precision), kernel, blocks, self._number_of(op.borders))
            case OverEdgesOp():
                # the code counts blocks of a constant graph, and there are as many as the edges make
                others = {name: str(value) for name, value in op.properties.items() if name not in REASONS}
                return (
                    None if op.of_call else block_count(op.edges),
                    op.target_walk is not None,
                    sorted(others.items()),
                )
            case _:
                return sorted((name, str(value)) for name, value in op.properties.items())

    def _number_of(self, borders: Borders) -> int:
        """Return a number that equal borders have in common."""
        if not borders:
            return -1
        self._borders.setdefault(borders)
        return list(self._borders).index(borders)
