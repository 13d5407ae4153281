"""Numbers of blocks that kernels cut the inputs of a layer into: the usual one, and others that may be better.

More blocks have fewer rows of x, which the first-level cache delivers; but each row of outputs reads and writes its
sums once for each block in which it has connections.
"""

from typing import Final, NamedTuple

MOST_INPUTS: Final = 2048
"""Inputs of a block that offsets of 16 bits, in units of 32 bytes, can tell apart."""

FACTORS: Final = (0.25, 0.5, 0.75, 1.5, 2.0)
"""Times the usual number of blocks: those that were measured to be the best of some layer and width."""


class BlockRule(NamedTuple):
    """The rule by which a family cuts inputs into blocks: some connections of a row in each, within bounds.

    most_in_segment are the connections that a row has in a block before a second segment of it begins.
    """

    family: str
    connections: int
    least_inputs: int
    most_inputs: int
    most_in_segment: int

    def usual(self, inputs: int, density: float) -> int:
        """Return the number of blocks of a layer where nothing is known to be better."""
        wanted = self.connections / density if density else self.most_inputs
        return max(fewest_blocks(inputs), round(inputs / min(max(wanted, self.least_inputs), self.most_inputs)))


def fewest_blocks(inputs: int) -> int:
    """Return the fewest blocks that a layer can have."""
    return max(1, -(-inputs // MOST_INPUTS))


def possible_blocks(inputs: int, wanted: int) -> int:
    """Return the number next to `wanted` that a layer can have."""
    return max(fewest_blocks(inputs), min(wanted, inputs))


def other_blocks(inputs: int, usual: int) -> tuple[int, ...]:
    """Return further numbers of blocks that are worth a thought, ascending."""
    return tuple(sorted({possible_blocks(inputs, round(usual * factor)) for factor in FACTORS} - {usual}))
