"""A rule for rolling targets that was trained: `bench/train_rolling.py` wrote its weights.

Its numbers depend on the network by two features, the connections of a target and the share of targets that are open at
once, linearly in their logarithms. They were trained by policy gradients with exploration in parameters (Sehnke et al.,
2010, "Parameter-exploring policy gradients") on random networks, for the transfers of whole orders under MIN; that a
policy which orders greedily can be trained so is from Gianinazzi et al. 2021 ("Learning combinatorial node labeling
algorithms").
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph
from .learned_weights import WEIGHTS
from .rolling_orders import MOST_USES, OCTAVES, RollingRule

FEATURES: Final = 3
NUMBERS: Final = 2 + OCTAVES + (MOST_USES + 1) * OCTAVES
"""Numbers of a rule: the exponent, the overlap, `loading`, `opening`."""

EXPONENT: Final = 2.5
"""The exponent of a rule whose numbers are zeros."""

OPENING_UNIT: Final = 0.02
"""Worth of a number 1 of `opening`."""

MOST_FEATURE: Final = 1.5


def learned_rule(network: NeuronGraph, open_count: int) -> RollingRule:
    """Return the trained rule for a network of which `open_count` targets are open at once."""
    return rule_of(np.array(WEIGHTS).reshape(FEATURES, NUMBERS), network, open_count)


def rule_of(weights: NDArray[np.float64], network: NeuronGraph, open_count: int) -> RollingRule:
    """Return the rule by weights [FEATURES, NUMBERS]; with zeros it is a greedy one."""
    numbers = _features(network, open_count) @ weights
    exponent, overlap = np.exp(numbers[:2]).tolist()
    loading, opening = np.split(numbers[2:], [OCTAVES])
    return RollingRule(EXPONENT * exponent, overlap, np.exp(loading), OPENING_UNIT * opening.reshape(-1, OCTAVES))


def _features(network: NeuronGraph, open_count: int) -> NDArray[np.float64]:
    targets = max(1, int(np.sum(network.in_degrees > 0)))
    degree = max(network.connection_count, 1) / targets
    logarithms = np.log([degree / 8, 12 * open_count / targets])
    return np.concatenate([[1.0], np.clip(logarithms / 1.5, -MOST_FEATURE, MOST_FEATURE)])
