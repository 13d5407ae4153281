"""Form of the code of an attention, and the scratch memory of a block of queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from xdsl.ir import Operation, SSAValue

from ...dialect.ops.attention import Attention, Roundings
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.quantized_layers import BFLOAT
from ...dialect.ops.tile import TileOp, chain_in
from ..cpu_target import CpuTarget
from ..llvm.matrix_tiles import ROWS as TILE_ROWS
from ..llvm.values import ALIGNMENT, FLOAT_BYTES

WIDTHS: Final = (16, 32, 64)
"""Queries of a block."""

MOST_KEYS: Final = 132
"""Keys of a block: scores of 64 queries stay in a first-level cache of 48 KiB."""

VECTORS: Final = {32: 4, 16: 2}
"""Vectors of queries in registers, by the number of registers."""

ROWS: Final = {32: {4: 6, 2: 8, 1: 8}, 16: {2: 6, 1: 6}}
"""Keys, or features of values, whose sums for so many vectors stay in registers."""

ROUNDED_KEYS: Final = 5 * MOST_KEYS
"""Keys of a block whose weights are rounded: those of several blocks have to be computed twice."""

DEPTH: Final = 32
"""Features, or keys, of a tile of bfloat16."""

MOST_FEATURES: Final = 128
"""Features of values that are multiplied by tiles: they are transposed where scores are going to be."""

MOST_BLOCKS: Final = 4
"""Blocks of as many queries as the widest has, one after the other, that read a block of keys from the first level."""

SPARE_ROWS: Final = 2 * max(max(rows.values()) for rows in ROWS.values())
"""Rows of scores behind the last key: a block is rounded up to what registers hold, and so is what is written of it."""


@dataclass(frozen=True)
class AttentionForm:
    """Attention of one head: the features of a key and of a value, and how scores become weights."""

    key_size: int
    value_size: int
    scale: float
    masked: bool
    causal: bool
    nan_as_zero: bool
    has_past: bool
    roundings: Roundings
    is_rounded: bool = False
    """Whether queries, keys and values are results of layers on codes or bfloat16, so that 16 bits are enough."""

    @staticmethod
    def of(op: Attention) -> "AttentionForm":
        """Return the form of an op."""
        weighting = op.weighting
        flags = op.mask is not None, weighting.causal, weighting.nan_as_zero, bool(op.past)
        sizes_fit = op.key_size % DEPTH == 0 and op.value_size % TILE_ROWS == 0 and op.value_size <= MOST_FEATURES
        is_rounded = sizes_fit and not op.past and not any(weighting.roundings)
        is_rounded = is_rounded and all(_is_rounded(value) for value in (op.q, op.k, op.v))
        return AttentionForm(op.key_size, op.value_size, weighting.scale, *flags, weighting.roundings, is_rounded)

    @property
    def biased(self) -> bool:
        """Whether something is added to the scores: a mask, or -inf for keys behind the query."""
        return self.masked or self.causal

    @property
    def query_scale(self) -> float:
        """Factor of the queries, so that products count steps of the codes that they are rounded to."""
        products = self.roundings.products
        return self.scale / products[0].values[0] if products else self.scale

    def in_tiles(self, target: CpuTarget) -> bool:
        """Return whether products are those of tiles."""
        return self.is_rounded and target.multiplies_bfloat_tiles

    @property
    def most_keys(self) -> int:
        """Keys of a block."""
        most = MOST_KEYS // DEPTH * DEPTH if self.is_rounded else MOST_KEYS
        return ROUNDED_KEYS if self.rounds_weights else most

    def most_blocks(self, width: int) -> int:
        """Return the blocks of queries that follow each other; where weights are rounded their scores have to stay."""
        return MOST_BLOCKS if width == WIDTHS[-1] and not self.rounds_weights else 1

    @property
    def score_rows(self) -> int:
        """Rows of scores."""
        return self.most_keys + SPARE_ROWS

    @property
    def rounds_weights(self) -> bool:
        """Whether weights are rounded, which is done once their sum is known."""
        return bool(self.roundings.weights)

    @property
    def key(self) -> str:
        """A name for functions of this form."""
        numbers = [self.scale, *(number for some in self.roundings for one in some for number in one.values)]
        scale = "_".join(number.hex() for number in numbers).replace(".", "_").replace("-", "m").replace("+", "p")
        known = {"m": self.masked, "c": self.causal, "n": self.nan_as_zero, "p": self.has_past}
        known["b"] = self.is_rounded
        flags = "".join(letter for letter, is_set in known.items() if is_set)
        rounded = "".join(f"{letter}{len(some)}" for letter, some in zip("psw", self.roundings, strict=True) if some)
        return f"{self.key_size}_{self.value_size}_{scale}_{flags}{rounded}"


def _is_rounded(value: SSAValue) -> bool:
    op = value.owner
    if isinstance(op, TileOp):
        made = op.yielded[op.results.index(value)].owner
        if isinstance(made, LinearOp) and made.precision is not None and made.precision.data == BFLOAT:
            return True
    return isinstance(op, Operation) and chain_in(op) is not None


class Registers(NamedTuple):
    """Sums that stay in registers: so many vectors of queries, for so many keys or features."""

    vectors: int
    rows: int
    lanes: int

    @staticmethod
    def of(target: CpuTarget, width: int) -> "Registers":
        """Return those of a block of `width` queries."""
        vectors = min(VECTORS[target.registers], width // target.lanes)
        return Registers(vectors, ROWS[target.registers][vectors], target.lanes)

    @property
    def columns(self) -> int:
        """The queries that they serve."""
        return self.vectors * self.lanes


class BufferOffsets(NamedTuple):
    """Floats from the start of a thread's scratch memory at which arrays begin, and from the start of a block's own."""

    scores: int
    """[keys of a block, width]; then the weights"""
    keys: int
    """[keys of a block, features of a key]: a copy without gaps, which several blocks of queries read"""
    values: int
    """[keys of a block, features of a value]: the same of values"""
    weights: int
    """[keys of a block, width]: weights as tiles have them, where those are multiplied"""
    blocks: int
    """Arrays of the first block of queries; those of the next one follow."""
    end: int

    @staticmethod
    def of(form: AttentionForm, width: int) -> "BufferOffsets":
        """Return the offsets for blocks of `width` queries."""
        blocks = form.most_blocks(width)
        copied = form.most_keys if blocks > 1 or form.is_rounded else 0
        sizes = (
            form.score_rows * width,
            copied * form.key_size,
            copied * form.value_size,
            form.most_keys * width if form.is_rounded else 0,
            blocks * BlockOffsets.of(form, width).end,
        )
        return BufferOffsets(*_starts(sizes))

    @property
    def total_bytes(self) -> int:
        """The bytes of all arrays."""
        return self.end * FLOAT_BYTES


class BlockOffsets(NamedTuple):
    """Floats from the start of a block's own memory at which its arrays begin, each [rows, width]."""

    queries: int
    """[features of a key, width]"""
    sums: int
    """[features of a value, width]: weighted sums so far"""
    highest: int
    """[width]: the largest score so far"""
    total: int
    """[width]: the sum of weights so far"""
    correction: int
    """[width]: what sums so far are multiplied with, as the largest score has changed"""
    query_tiles: int
    """[features of a key, width]: queries as tiles have them, where those are multiplied"""
    factor: int
    """[width]: what weights are multiplied with before they are rounded, one by their sum"""
    end: int

    @staticmethod
    def of(form: AttentionForm, width: int) -> "BlockOffsets":
        """Return the offsets for a block of `width` queries."""
        tiles = form.key_size if form.is_rounded else 0
        return BlockOffsets(*_starts([rows * width for rows in (form.key_size, form.value_size, 1, 1, 1, tiles, 1)]))


def _starts(sizes: Sequence[int]) -> list[int]:
    """Return where arrays start that follow each other, each at a multiple of a cache line, and where the last ends."""
    line = ALIGNMENT // FLOAT_BYTES
    return list(accumulate((-(-size // line) * line for size in sizes), initial=0))
