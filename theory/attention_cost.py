"""Price and data movement of an attention by its length: products with keys and values, and weights between them.

A block of 64 queries reads all keys and values of its head, so that S queries and T keys of d and e features move

    4 bytes (S d + ceil(S / 64) T (d + e) + S e)     and S T of a mask

for each head, where the least is each operand once. Scores never leave the block.
"""

from typing import Final, NamedTuple

WEIGHT_WORK: Final = 30
"""Multiply-adds in the time in which a score becomes a weight: a maximum, an exponential, a sum."""

BLOCK_QUERIES: Final = 64
LEAST_QUERIES: Final = 16
"""Queries of the narrowest block, whose lanes are computed whether there is a query or not."""


class AttentionSize(NamedTuple):
    """Numbers of samples, heads, queries and keys, and of the features of a key and of a value of one head."""

    samples: int
    heads: int
    queries: int
    keys: int
    key_size: int
    value_size: int
    masked: bool = False

    @property
    def scores(self) -> int:
        """Scores of all heads, those of lanes without a query included."""
        lanes = -(-self.queries // LEAST_QUERIES) * LEAST_QUERIES
        return self.samples * self.heads * lanes * self.keys


def attention_work(size: AttentionSize) -> int:
    """Return the multiply-adds of a dense layer that take as long as an attention, at `BLOCK_QUERIES` rows."""
    return size.scores * (size.key_size + size.value_size + WEIGHT_WORK)


def moved_bytes(size: AttentionSize) -> int:
    """Return the bytes that blocks of queries read and write."""
    return _bytes(size, -(-size.queries // BLOCK_QUERIES))


def least_bytes(size: AttentionSize) -> int:
    """Return the bytes of all operands and of the result, each once: no order moves fewer."""
    return _bytes(size, 1)


def _bytes(size: AttentionSize, readings: int) -> int:
    features = size.key_size + size.value_size
    values = size.queries * features + readings * size.keys * features + size.masked * size.queries * size.keys
    return 4 * size.samples * size.heads * values
