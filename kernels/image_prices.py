"""Times of layers on images, as measured; and over these, the times of a machine.

Kernels on tiles of pixels have prices of their own: see `prices.py` and `byte_times.py`.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from .machine import DEFAULT_PRICES, Machine

COPIED_US: Final = 0.10e-3
"""Microseconds of a value that is copied to where a window of another pixel reads it."""

MOVED_US: Final = 0.6e-3
"""Microseconds of a value that comes into an image network, leaves it, or goes to the plane of a stride."""

RESAMPLED_US: Final = 1.0e-3
"""Microseconds of a value that goes to another place in its plane, as those of resizings do."""

REORDERED_US: Final = 0.2e-3
"""Microseconds of a value that onnxruntime takes from blocks of channels to planes, or back, around other nodes."""

TOUCHED_US: Final = 0.12e-3
"""Microseconds of a value of elementwise work."""

FAR_US: Final = 0.2e-3
"""Microseconds of a value that a layer reads or writes beyond the second-level cache."""

LINE_US: Final = 1.5e-3
"""Microseconds of a line, the codes of a tile's pixels, that is copied to where a window has it."""

FOUND_US: Final = 0.2e-3
"""Microseconds of a value whose range is found."""

DENSE_POOLED_US: Final = 0.028e-3
"""Microseconds of a tap of a largest code in onnxruntime."""

ROUNDINGS_US: Final = 2.5
"""Microseconds of the nodes that round to codes, and back, around a convolution that is left to the runtime."""

CODED_US: Final = {"activate": 0.07e-3, "binary": 0.42e-3}
"""Microseconds of a code that elementwise work makes of codes: by a table of all, or of two values."""

DENSE_CODED_US: Final = {"activate": 0.85e-3, "add": 0.37e-3, "binary": 0.65e-3}
"""The same in onnxruntime, where sums are faster than other arithmetic."""

TAP_US: Final = 0.037e-3
"""Microseconds of a tap of a value of a depthwise convolution, or of a pooling."""


class ImageShares(NamedTuple):
    """Times on a machine, over those above or those of dense layers."""

    values: float
    dense: float
    """Dense convolutions of onnxruntime."""
    taps: float
    dense_taps: float
    """Taps in onnxruntime."""
    weights: float = 1.0
    """Weights of sparse convolutions from beyond the second-level cache, which are read in order, beside sums."""
    machine: Machine = Machine()
    """Its memory and its activations, which have times of their own."""


IMAGE_SHARES: Final = {
    DEFAULT_PRICES: ImageShares(values=1.0, dense=0.8, taps=1.0, dense_taps=1.35),
    "emerald_rapids": ImageShares(values=0.5, dense=0.85, taps=0.9, dense_taps=0.6, weights=0.5),
    "zen5": ImageShares(values=0.3, dense=0.96, taps=0.75, dense_taps=0.92),
}
"""Shares by the machine of the prices. On Emerald Rapids they were measured on chains of layers: dense ones of 64 to
512 channels, 1 to 56 pixels a side, and 50 to 95 % zeros; depthwise ones of 9 and 25 taps and the largest of 9, of 14
to 56 pixels a side, as parts of the time of the products beside them."""


def image_shares(machine: Machine) -> ImageShares:
    """Return the shares of a machine, by its prices in `kernels/prices.py`."""
    return IMAGE_SHARES.get(machine.prices, IMAGE_SHARES[DEFAULT_PRICES])._replace(machine=machine)


def machine_of_images(machine: Machine) -> Machine:
    """Return a machine as sparse convolutions find it, that reads weights as fast as their share says."""
    share = image_shares(machine).weights
    return replace(machine, l3_ns=share * machine.l3_ns, dram_ns=share * machine.dram_ns) if share < 1 else machine


DEFAULT_SHARES: Final = image_shares(Machine())
