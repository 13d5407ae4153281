"""The tiles of a network that differ only in weights: their functions are emitted once, for the constants of each.

The functions of a tile find their constants behind the first one of their own, which its step knows by a number that
is set when all tiles have been emitted: threads together may need arrays that one thread does not.
"""

from dataclasses import dataclass, field

from llvmlite import ir

from ..dialect.ops.tile import TileOp
from .code_key import ops_of_tile, tile_key
from .llvm.call_tables import ConstantTable, packed_in_threads
from .llvm.values import I64, POINTER
from .tiles.row_major import TileConstants


@dataclass
class TileSharing:
    """The tiles of a network that have been emitted."""

    module: ir.Module
    _tiles: dict[TileOp, TileConstants] = field(default_factory=dict[TileOp, TileConstants])
    _first: dict[str, TileOp] = field(default_factory=dict[str, TileOp])

    def constants_of(self, tile: TileOp) -> TileConstants:
        """Return the constants of a tile: packed already where its functions are those of an earlier one."""
        known = self._tiles.get(tile)
        if known is None:
            number, key = len(self._tiles), tile_key(tile)
            first = tile if key is None else self._first.setdefault(key, tile)
            packed = None if first is tile else _packed(self._tiles[first].table, first, tile)
            if packed is not None:
                number = self._tiles[first].number
            known = TileConstants(number, packed or ConstantTable(), self._start(len(self._tiles)))
            self._tiles[tile] = known
        return known

    def place(self, constants: ConstantTable) -> None:
        """Put the constants of all tiles behind those of the network."""
        for known in self._tiles.values():
            known.start.initializer = ir.Constant(I64, len(constants.arrays))
            constants.arrays += known.table.arrays
            constants.recipes += known.table.recipes

    def _start(self, number: int) -> ir.GlobalVariable:
        start = ir.GlobalVariable(self.module, I64, f"first_constant{number}")
        start.linkage, start.global_constant = "internal", True
        start.type = POINTER
        return start


def _packed(table: ConstantTable, first: TileOp, tile: TileOp) -> ConstantTable | None:
    """Return the constants of a tile in the order of those of the first one; None where they are not as many."""
    counterparts = dict(zip(ops_of_tile(first), ops_of_tile(tile), strict=True))
    recipes = [recipe if recipe.op is None else recipe._replace(op=counterparts[recipe.op]) for recipe in table.recipes]
    arrays = packed_in_threads(recipes)
    return None if arrays is None else ConstantTable(arrays, recipes=recipes)
