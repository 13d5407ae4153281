"""Directions in a few bits: signs stay, magnitudes are right up to a factor, and so are the signs of sums."""

import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.training.direction_sums import BLOCK, DirectionSums, decoded, encoded
from redpebble.training.quantized_sums import packed_numbers, unpacked_numbers
from redpebble.training.replicas import Alone

Floats = NDArray[np.float32]

RELATIVE = {2: 2.0, 3: 2.0, 4: 1.35, 8: 1.02}
"""Factor that magnitudes of one to the least are off by, at most, by bits."""


@pytest.mark.parametrize("bits", range(1, 9))
def test_numbers_of_few_bits_are_packed_and_found_again(bits: int) -> None:
    numbers = np.random.default_rng(0).integers(0, 1 << bits, (3, 40)).astype(np.uint8)
    packed = packed_numbers(numbers, bits)
    assert packed.shape == (3, 5 * bits)
    assert np.array_equal(unpacked_numbers(packed, bits, 40), numbers)


@pytest.mark.parametrize(("bits", "factor"), RELATIVE.items())
def test_signs_stay_and_magnitudes_are_right_up_to_a_factor(bits: int, factor: float) -> None:
    rng = np.random.default_rng(1)
    least = 1 / 4 if bits == 2 else 1 / 64
    scales = np.array([[1e-30], [1e-6], [1.0], [1e20]])
    sizes = np.exp(rng.uniform(np.log(least), 0, (4, BLOCK)))
    sizes[:, 0] = 1
    values = (scales * sizes * rng.choice([-1, 1], sizes.shape)).astype(np.float32)
    found = decoded(encoded(values, bits), bits)
    assert encoded(values, bits).packed.shape == (4, bits * BLOCK // 8)
    ratios = found / values
    assert 1 / (1.001 * factor) <= ratios.min() <= ratios.max() <= 1.001 * factor
    # what is less still has its sign, and counts for no more than the least
    tiny = values * np.where(np.arange(BLOCK) == 0, 1, 1e-6).astype(np.float32)
    found = decoded(encoded(tiny, bits), bits)
    assert np.array_equal(np.sign(found), np.sign(tiny))
    assert np.abs(found[:, 1:]).max(axis=1) == pytest.approx(least * scales[:, 0], rel=1e-3)


def test_a_block_of_zeros_stays_zero() -> None:
    assert not decoded(encoded(np.zeros((2, BLOCK), np.float32), 3), 3).any()


class BesideAnother(Alone):
    """The first of two replicas; what the other one sends is known, and it finds the signs of its share alike."""

    size = 2

    def __init__(self, other: Floats) -> None:
        """Know what the other one has."""
        self.other = other

    def scatter(self, blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
        share = len(blocks) // 2
        own = np.concatenate((encoded(self.other.reshape(-1, BLOCK), 4).packed[:share], blocks[:share, -4:]), axis=1)
        return np.concatenate((blocks[:share], own))

    def gather(self, blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.concatenate((blocks, blocks))


def test_a_large_value_outvotes_a_small_one_of_another_sign() -> None:
    large = np.tile(np.array([1, -1, 0.3, -0.3], np.float32), BLOCK // 2)
    small = np.tile(np.array([-0.1, 0.1, -0.05, 0.02], np.float32), BLOCK // 2)
    small[:: BLOCK // 2] = -1
    bits = DirectionSums(BesideAnother(small), 2 * BLOCK - 3, 4).signs(large[: 2 * BLOCK - 3])
    assert len(bits) == 2 * BLOCK // 8
    found = np.unpackbits(bits, count=BLOCK).astype(bool)
    sums = (large + small)[:BLOCK]
    assert np.array_equal(found[sums != 0], (sums > 0)[sums != 0])
