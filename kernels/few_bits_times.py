"""Predicted time of a MatMulNBits in onnxruntime, which a sparse layer of few bits has to beat.

Measured with groups of 32 inputs, on layers of 2048 to 4096 inputs and outputs: for vectors of 8 floats on Zen 1, where
all takes 3.5 times as long as by the prices of Zen 5; for vectors of 16 on Zen 5, and with rounded inputs on a Xeon
(Emerald Rapids), where many rows take three times as long. What is given are lower ends.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from .machine import Machine


class FewBits(NamedTuple):
    """The weight of a MatMulNBits as its time depends on it."""

    bits: int
    size: int
    """Inputs of a group, which has a scale of four bytes."""
    rounds_inputs: bool
    """Whether its inputs are rounded to integers of eight bits, group by group."""

    def bytes(self, inputs: int, outputs: int) -> float:
        """Return the bytes that onnxruntime reads of the weight."""
        return inputs * outputs * (self.bits / 8 + 4 / self.size)


ROWS: Final = (1, 2, 4, 8, 128)

WEIGHT_NS: Final[Mapping[tuple[int, bool], tuple[float, ...]]] = {
    (16, True): (0.016, 0.0206, 0.035, 0.065, 0.95),
    (16, False): (0.040, 0.065, 0.105, 0.19, 1.15),
    (8, True): (0.029, 0.039, 0.077, 0.15, 2.6),
    (8, False): (0.13, 0.19, 0.21, 0.27, 2.7),
}
"""Floats in a vector, whether inputs are rounded -> ns of a weight of four bits at `ROWS` rows, but for memory.

Weights of eight bits take at least as long."""

ELSEWHERE_NS: Final = {**WEIGHT_NS, (16, True): (0.03, 0.037, 0.07, 0.15, 2.3)}
"""The same on machines that have not the prices of Zen 5: the lower ends of Cascade Lake and Emerald Rapids."""


def runtime_times(
    weight: FewBits, inputs: int, outputs: int, counts: Iterable[int], machine: Machine, other_bytes: float = 0.0
) -> dict[int, float]:
    """Return the microseconds of a layer in onnxruntime on some numbers of rows, beside so many bytes of others."""
    prices = (WEIGHT_NS if machine.prices == "zen5" else ELSEWHERE_NS)[max(8, machine.lanes), weight.rounds_inputs]
    read = weight.bytes(inputs, outputs)
    far = machine.memory_ns(read, read + other_bytes)
    times = dict[int, float]()
    for rows in counts:
        # beyond the last number of rows each takes as long
        each = np.interp(min(rows, ROWS[-1]), ROWS, prices) * max(1.0, rows / ROWS[-1])
        times[rows] = (inputs * outputs * float(each) + far) / 1000
    return times
