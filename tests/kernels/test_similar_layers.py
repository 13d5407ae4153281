"""Layers that are alike are priced once; those that are not are told apart."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from redpebble.kernels.layer_with_pattern import LayerWithPattern
from redpebble.kernels.similar_layers import TOLERANCE, Likeness, likeness_of
from redpebble.kernels.work import Layer
from redpebble.sparse.csr import CscMatrix

Mask = NDArray[np.bool_]


def _layer(mask: Mask) -> LayerWithPattern:
    weight = CscMatrix.from_dense(mask.astype(np.float32))
    return LayerWithPattern(mask.shape[0], np.diff(weight.pointers), 1e6, rows=weight.pattern)


def _random(seed: int, density: float = 0.1) -> Mask:
    values = np.random.default_rng(seed).random((256, 512))
    return values < np.quantile(values, density)


def test_random_masks_of_one_density_are_alike() -> None:
    """Pruning by magnitude leaves the layers of an encoder so."""
    one, two = likeness_of(_layer(_random(0))), likeness_of(_layer(_random(1)))
    assert one is not None
    assert two is not None
    assert one.alike(two)


def _band(_: Mask) -> Mask:
    """As many connections near a diagonal."""
    inputs, outputs = np.indices((256, 512))
    return np.abs(inputs - outputs / 2) <= 12.4


def _skewed(mask: Mask) -> Mask:
    """As many connections, most of them in half of the outputs."""
    rng = np.random.default_rng(2)
    return rng.random(mask.shape) < np.where(np.arange(512) < 256, 0.18, 0.02)


def _panels(mask: Mask) -> Mask:
    """As many connections, 32 outputs with the same inputs."""
    return np.repeat(mask[:, ::32], 32, axis=1)


def _denser(_: Mask) -> Mask:
    return _random(3, 0.105)


@pytest.mark.parametrize("changed", [_band, _skewed, _panels, _denser])
def test_other_masks_are_not(changed: Callable[[Mask], Mask]) -> None:
    """Their times differ, or may."""
    one, two = likeness_of(_layer(_random(0))), likeness_of(_layer(changed(_random(0))))
    assert one is not None
    assert two is not None
    assert not one.alike(two)


def test_dense_layers_of_one_shape_are_alike_and_like_no_others() -> None:
    """Whether weights are codes, and how much else is read, is a part of it."""
    dense = Layer(256, np.full(512, 256), 1e6, "dense")
    one, same = likeness_of(dense), likeness_of(replace(dense, counts=np.full(512, 255)))
    others = [
        likeness_of(replace(dense, code_bits=4)),
        likeness_of(replace(dense, other_bytes=2e6)),
        likeness_of(_layer(np.ones((256, 512), np.bool_))),
    ]
    assert one is not None
    assert same is not None
    assert one.alike(same)
    assert not any(one.alike(other) for other in others if other is not None)
    assert None not in others


@given(st.integers(1, 1 << 40), st.floats(1 - TOLERANCE, 1))
def test_alike_layers_are_at_most_a_step_apart(connections: int, share: float) -> None:
    one, two = (Likeness((1, 1), (float(count),)) for count in (connections, round(connections * share)))
    assert not one.alike(two) or abs(one.step - two.step) <= 1
