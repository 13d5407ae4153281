"""Prices of activations, worked out by hand from what was measured of each beside a sigmoid."""

import pytest

from redpebble.dialect.attributes.activations import ACTIVATIONS, OF_FEW_INSTRUCTIONS
from redpebble.kernels.activation_prices import KINDS, activation_us, runtime_activation_us
from redpebble.kernels.machine import Machine

SERVER = Machine()
NARROW = Machine(8, prices="zen5")
WIDE = Machine(16, prices="zen5")

PRICED = [
    # ns of a value: ours, and onnxruntime's
    ("sigmoid", SERVER, 0.5, 0.2),
    ("sigmoid", WIDE, 0.15, 0.15),
    ("sigmoid", NARROW, 0.55, 0.26),
    ("tanh", NARROW, 0.55, 0.9 * 0.26),
    ("erf", NARROW, 1.8 * 0.55, 2.2 * 0.26),
    ("softplus", NARROW, 2.0 * 0.55, 20 * 0.26),
    ("bfloat16", SERVER, 0.5, 0.2),
]


@pytest.mark.parametrize(("kind", "machine", "ours", "theirs"), PRICED)
def test_an_activation_has_its_price_on_each_machine(kind: str, machine: Machine, ours: float, theirs: float) -> None:
    assert activation_us(kind, machine) == pytest.approx(ours / 1e3)
    assert runtime_activation_us(kind, machine) == pytest.approx(theirs / 1e3)


def test_all_that_takes_a_pass_of_its_own_was_measured() -> None:
    # rounding is part of the work before it; onnxruntime computes some in passes that our kernels need none for
    short = {"hard_swish", "scaled_hard_swish", "scaled_relu"}
    assert {*KINDS} == ({*ACTIVATIONS} - OF_FEW_INSTRUCTIONS - {"bfloat16", "quantize"}) | short
