"""The kernel families of linear layers. A new one is a format file, a code file, and a line here."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from .family import KernelFamily
from .formats import (
    bfloat_pairs,
    bfloat_tiles,
    code_bits,
    code_bytes,
    code_halves,
    code_slots,
    count_blocks,
    dense_outputs,
    gathered_panels,
    lookup_halves,
    lookup_rows,
    narrow_blocks,
    permute_lookup,
    row_panels,
    sparse_rows,
    strips,
)
from .work import Layer

_ALL: Final = (
    permute_lookup.FAMILY,
    lookup_rows.FAMILY,
    dense_outputs.FAMILY,
    count_blocks.FAMILY,
    narrow_blocks.FAMILY,
    row_panels.FAMILY,
    strips.FAMILY,
    sparse_rows.FAMILY,
    gathered_panels.FAMILY,
    bfloat_pairs.FAMILY,
    bfloat_tiles.FAMILY,
    lookup_halves.FAMILY,
    code_slots.FAMILY,
    code_bits.FAMILY,
    code_bytes.FAMILY,
    code_halves.FAMILY,
)

FAMILIES: Final[Mapping[str, KernelFamily]] = MappingProxyType({family.name: family for family in _ALL})
"""Families by the names that the IR uses."""

OVER_BLOCKS: Final = tuple(family for family in _ALL if family.block_rule is not None)
"""Families that cut their inputs into blocks."""


def is_dense(name: str) -> bool:
    """Return whether a family, if it is one of ours, computes zeros, too."""
    return name in FAMILIES and FAMILIES[name].is_dense


def takes_any_rows(name: str) -> bool:
    """Return whether a family, if it is one of ours, has code for any number of rows."""
    return name in FAMILIES and FAMILIES[name].any_rows


def are_rows(names: Iterable[str]) -> bool:
    """Return whether a tile is of rows where these families, as far as they are ours, compute its layers."""
    return any(name in FAMILIES and FAMILIES[name].row_major for name in names)


def block_counts(layer: Layer) -> dict[str, int]:
    """Return the blocks of inputs of a layer, by the families that have some."""
    return {family.name: family.block_count(layer) for family in OVER_BLOCKS}
