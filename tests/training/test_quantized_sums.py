"""Sums in a few bits: errors that are carried on stay small, and the mean of steps is that of the sums."""

import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.training.quantized_sums import BLOCK, MOST_BITS, QuantizedSums, decoded, encoded
from redpebble.training.replicas import Alone

Floats = NDArray[np.float32]


def blocks() -> dict[str, Floats]:
    rng = np.random.default_rng(0)
    spike = np.zeros((4, BLOCK), np.float32)
    spike[:, 7] = -3
    return {
        "normal": rng.standard_normal((4, BLOCK), dtype=np.float32),
        "heavy tails": rng.standard_t(2, (4, BLOCK)).astype(np.float32),
        "alike": np.full((4, BLOCK), 0.25, np.float32),
        "zeros": np.zeros((4, BLOCK), np.float32),
        "a spike": spike,
    }


@pytest.mark.parametrize("bits", range(1, MOST_BITS + 1))
def test_what_is_lost_is_less_than_what_was_there(bits: int) -> None:
    rng = np.random.default_rng(1)
    for name, values in blocks().items():
        codes = encoded(values, bits, rng)
        assert codes.packed.shape == (4, bits * BLOCK // 8)
        lost = np.square(decoded(codes, bits) - values).sum()
        assert lost <= 0.999 * np.square(values).sum(), name


def test_the_mean_of_codes_is_the_value() -> None:
    rng = np.random.default_rng(1)
    values = rng.uniform(-1, 1, (1, BLOCK)).astype(np.float32)
    mean = np.mean([decoded(encoded(values, 4, rng), 4) for _ in range(400)], axis=0)
    np.testing.assert_allclose(mean, values, atol=0.05)


class Two(Alone):
    """Two replicas that have the same: what one sends is what the other does."""

    size = 2

    def scatter(self, blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
        first = blocks[: len(blocks) // 2]
        return np.concatenate((first, first))

    def gather(self, blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.concatenate((blocks, blocks))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_over_steps_nothing_is_lost(bits: int) -> None:
    values = np.random.default_rng(0).standard_normal(BLOCK - 3, dtype=np.float32)
    doubled = np.concatenate((values, np.zeros(3, np.float32), values))
    sums = QuantizedSums(Two(), len(doubled), bits, seed=0)
    total, late = np.zeros_like(doubled), list[np.floating]()
    for number in range(1, 601):
        step = doubled.copy()
        sums.add(step)
        total += step
        if number in (200, 600):
            late.append(np.square(total - 2 * number * doubled).mean())
    if bits == 1:
        # large values lag behind, as signs are alike
        assert np.corrcoef(total, doubled)[0, 1] > 0.99
        return
    # less than a few steps, and no more of it later
    assert late[0] < {2: 40, 4: 1, 8: 0.1}[bits]
    assert late[1] < 1.5 * late[0]
