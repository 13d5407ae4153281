"""A step of training as the loop sees it, whatever computes it: one native call, or the parts of several ranks."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..lowering.program import Tensor

Floats = NDArray[np.float32]


class Batch(NamedTuple):
    """A step on arrays of a batch: `run` finds the outputs [rows, features], and gradients, sums over rows."""

    run: Callable[[], object]
    outputs: Floats


class Step(Protocol):
    """Outputs and gradients of a batch; `values` and `gradient` [values] are in the same order."""

    target: Tensor
    """The array of what is wanted."""
    ends_in_softmax: bool
    values: Floats
    gradient: Floats

    @property
    def tensors(self) -> Sequence[Tensor]:
        """The inputs of the network."""
        ...

    @property
    def initializers(self) -> Mapping[str, slice]:
        """The places among the values of each initializer that is trained, by its name."""
        ...

    def bind(self, feeds: Mapping[str, Floats], target: Floats) -> Batch:
        """Return the step for arrays of a batch, which are read at each run."""
        ...

    def put(self) -> None:
        """Compute with the values from now on."""
        ...
