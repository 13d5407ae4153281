"""Tiles of x86 (AMX): eight registers of 16 rows of 64 bytes, and the instructions that multiply them.

A process asks Linux for them before (`runtime/jit.py`); each function configures them, and gives them back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from .intrinsics import call_intrinsic
from .values import BYTE, VOID, Bytes, Index

TILES: Final = 8

ROWS: Final = 16

ROW_BYTES: Final = 64

TILE_BYTES: Final = ROWS * ROW_BYTES

CONFIGURATION: Final = [1, *[0] * 15, *[ROW_BYTES, 0] * TILES, *[0] * 16, *[ROWS] * TILES, *[0] * 8]
"""The first palette; bytes of a row, of 16 bits, and rows of each tile."""


@dataclass(frozen=True)
class MatrixTiles:
    """Instructions at the place of `builder`."""

    builder: ir.IRBuilder

    def configure(self, memory: Bytes) -> None:
        """Emit the beginning of the use of whole tiles; the memory is as large as `CONFIGURATION`."""
        memory.store(ir.Constant(ir.VectorType(BYTE, len(CONFIGURATION)), CONFIGURATION), 1)
        self._call("ldtilecfg", memory.value)

    def release(self) -> None:
        """Emit the end of their use."""
        self._call("tilerelease")

    def clear(self, tile: int) -> None:
        """Emit zeros."""
        self._call("tilezero", tile)

    def load(self, tile: int, place: Bytes, stride: Index) -> None:
        """Emit the reading of a tile, whose rows are some bytes apart."""
        self._call("tileloadd64", tile, place.value, self._number(place, stride))

    def store(self, tile: int, place: Bytes, stride: Index) -> None:
        """Emit the writing of a tile."""
        self._call("tilestored64", tile, place.value, self._number(place, stride))

    def multiply_bytes(self, sums: int, left: int, right: int) -> None:
        """Emit products of unsigned bytes and signed ones, added to sums of 32 bits."""
        self._call("tdpbusd", sums, left, right)

    def multiply_bfloats(self, sums: int, left: int, right: int) -> None:
        """Emit products of bfloat16, added to sums that are floats."""
        self._call("tdpbf16ps", sums, left, right)

    @staticmethod
    def _number(place: Bytes, stride: Index) -> ir.Value:
        return place.constant(stride).value if isinstance(stride, int) else stride.value

    def _call(self, name: str, *operands: int | ir.Value) -> None:
        values: Sequence[ir.Value] = [ir.Constant(BYTE, one) if isinstance(one, int) else one for one in operands]
        call_intrinsic(self.builder, f"llvm.x86.{name}", VOID, values)
