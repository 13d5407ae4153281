"""Adam (Kingma and Ba 2015) in numpy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class Adam:
    """Adam's moments for a list of parameters, which are updated in place."""

    def __init__(self, parameters: Sequence[Array]) -> None:
        self._parameters = parameters
        self._first = [np.zeros_like(p) for p in parameters]
        self._second = [np.zeros_like(p) for p in parameters]
        self._step = 0

    def update(self, gradients: Sequence[Array], rate: float) -> None:
        """One step against the gradients; what never had one stays as it is."""
        self._step += 1
        first_bias, second_bias = 1 - 0.9**self._step, 1 - 0.999**self._step
        for p, m, v, g in zip(self._parameters, self._first, self._second, gradients, strict=True):
            m += np.float32(0.1) * (g - m)
            v += np.float32(0.001) * (g * g - v)
            p -= np.float32(rate / first_bias) * m / (np.sqrt(v / np.float32(second_bias)) + np.float32(1e-8))
