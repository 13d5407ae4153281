"""A graph of neurons with what each of them computes: the arrays of a network op, and of layers that run together."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import Indices
from ...sparse.neuron_graph import NeuronGraph
from .activations import ActivationAttr


class WeightedGraph(NamedTuple):
    """A graph of N neurons, I of them inputs, and W connections.

    Inputs are the neurons 0 to I - 1; neuron I + k is `activations[activation_of[k]]`(biases[k] + the sum over its
    connections of weight times source), without an activation where `activation_of[k]` is -1. Every connection runs
    from a smaller to a larger neuron. Outputs are no inputs: the features of the results, one result after the other.
    """

    graph: NeuronGraph
    weights: NDArray[np.float32]
    """[W]."""
    biases: NDArray[np.float32]
    """[N - I]."""
    activations: tuple[ActivationAttr, ...]
    activation_of: Indices
    """[N - I]."""

    @property
    def input_count(self) -> int:
        """I."""
        return len(self.graph.inputs)
