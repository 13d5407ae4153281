"""Predicted time of activations that take more than a few instructions: by our kernels, and by onnxruntime's.

What takes a pass of its own there alone has no time here. Both were measured on an older CPU with vectors of 8 floats,
on images of 64 channels of 56 x 56 and on 128 rows of 512 features, over onnxruntime's largest of 3 x 3, whose price is
known. A sigmoid took 2.1 times that here and 0.84 times there, on images, and 1.5 and 0.83 times on rows. On Zen 5,
with vectors of 16, both take as long.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from .machine import DEFAULT_PRICES, Machine

POWER_US: Final = 0.5e-3
"""Microseconds of a value of a sigmoid."""

DENSE_POWER_US: Final = 0.2e-3
"""The same in onnxruntime."""


class Shares(NamedTuple):
    """Times over those of a sigmoid, or of a machine over those above."""

    ours: float
    dense: float
    """The same of onnxruntime."""


KINDS: Final[Mapping[str, Shares]] = {
    "celu": Shares(0.8, 3.8),
    "elu": Shares(0.8, 3.3),
    "erf": Shares(1.8, 2.2),
    "exp": Shares(0.8, 1.3),
    "gelu": Shares(1.8, 2.8),
    "gelu_tanh": Shares(1.2, 1.5),
    "hard_swish": Shares(0.0, 0.4),
    "log": Shares(1.1, 3.0),
    "mish": Shares(1.3, 22.0),
    "reciprocal": Shares(0.2, 0.3),
    "scaled_hard_swish": Shares(0.0, 2.2),
    "scaled_relu": Shares(0.0, 1.8),
    "selu": Shares(0.8, 3.3),
    "sigmoid": Shares(1.0, 1.0),
    "silu": Shares(1.0, 1.2),
    "softplus": Shares(2.0, 20.0),
    "sqrt": Shares(0.2, 0.3),
    "tanh": Shares(1.0, 0.9),
}
"""Kind of activation -> its times over a sigmoid's. Of one that is not here both are a sigmoid's."""

SIGMOIDS: Final[Mapping[str, Mapping[int, Shares]]] = {
    DEFAULT_PRICES: {16: Shares(1.0, 1.0), 8: Shares(1.0, 1.0), 4: Shares(1.0, 1.0)},
    "emerald_rapids": {16: Shares(0.65, 1.25), 8: Shares(1.0, 1.25), 4: Shares(1.0, 1.25)},
    "zen5": {16: Shares(0.3, 0.75), 8: Shares(1.1, 1.3), 4: Shares(1.1, 1.3)},
}
"""Prices and floats in a vector -> times of a sigmoid over those above."""


def activation_us(kind: str, machine: Machine) -> float:
    """Return the microseconds of a value of an activation with a pass of its own."""
    return POWER_US * _of(kind).ours * _on(machine).ours


def runtime_activation_us(kind: str, machine: Machine) -> float:
    """Return the same of onnxruntime's operators for it."""
    return DENSE_POWER_US * _of(kind).dense * _on(machine).dense


def _of(kind: str) -> Shares:
    return KINDS.get(kind, KINDS["sigmoid"])


def _on(machine: Machine) -> Shares:
    return SIGMOIDS.get(machine.prices, SIGMOIDS[DEFAULT_PRICES])[machine.lanes]
