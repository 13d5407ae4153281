"""A step of training on the parts of a network: SpFF there, SpBP back (Demirci and Ferhatosmanoglu, ICS 2021).

Forward, ranks run their functions and send each other what others' neurons read. Backward, all steps are run in the
opposite order: a function finds the gradients of what it has read and of its weights, who has received a value sends
what its own neurons add to the value's gradient, and who has sent it adds that up. The same rows go the same ways, the
other way round; but for inputs of the network, which have no use for a gradient. Weights stay where they are.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...training.steps import Batch
from .bound_part import BoundPart
from .part_code import PartCode

Floats = NDArray[np.float32]


class PartStep(PartCode):
    """The step of one rank, which all ranks run together."""

    def bind(self, feeds: Mapping[str, Floats], target: Floats) -> Batch:
        """Return the step for arrays of a batch, which are read at each run."""
        return BoundPart(self, feeds, target).batch()
