"""How many blocks kernels cut the inputs of a layer into: the usual number, and others that may be better.

More blocks have fewer rows of x, which the first-level cache delivers; but each row of outputs reads and writes its
sums once for each block in which it has connections.
"""

from typing import Final, NamedTuple

MOST_INPUTS: Final = 2048
"""Of a block: offsets of 16 bits tell them apart, see `lowering/block_pieces`."""

FACTORS: Final = (0.25, 0.5, 0.75, 1.5, 2.0)
"""Times the usual number of blocks: those that were measured to be the best of some layer and width."""


class BlockRule(NamedTuple):
    """How many inputs a block usually has: enough for some connections of a row, within bounds."""

    connections: int
    least: int
    most: int

    def blocks(self, inputs: int, density: float) -> int:
        """Return the usual number of blocks of a layer."""
        wanted = min(max(self.connections / density, self.least), self.most) if density else self.most
        return max(fewest_blocks(inputs), round(inputs / wanted))


BLOCK_RULES: Final = {"count_blocks": BlockRule(14, 128, 2048), "narrow_blocks": BlockRule(50, 512, 1024)}
"""By family. 14 connections pay for reading and writing sums, and a row gains nothing by more than 50; 128 inputs take
half of the first-level cache in tiles of 64 columns, 512 to 1024 one to two thirds of it in tiles of 8."""


def fewest_blocks(inputs: int) -> int:
    """Return the fewest blocks that a layer can have."""
    return max(1, -(-inputs // MOST_INPUTS))


def usual_blocks(family: str, inputs: int, density: float) -> int:
    """Return the number of blocks that a family over blocks has where nothing is known to be better."""
    return BLOCK_RULES[family].blocks(inputs, density)


def possible_blocks(inputs: int, wanted: int) -> int:
    """Return the number next to `wanted` that a layer can have."""
    return max(fewest_blocks(inputs), min(wanted, inputs))


def other_blocks(inputs: int, usual: int) -> tuple[int, ...]:
    """Return further numbers of blocks that are worth a thought, ascending."""
    return tuple(sorted({possible_blocks(inputs, round(usual * factor)) for factor in FACTORS} - {usual}))
