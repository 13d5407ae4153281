"""Compiled loops: compiled once, kept on disk beside the source, without the interpreter's lock or allocation.

numba counts the references of arrays with atomic instructions wherever they pass between functions; in loops of some
nanoseconds a step that costs more than the work. Code that cannot allocate has nothing to count. So all arrays are
made by the callers.
"""

from __future__ import annotations

import numpy as np

from ..foundation.compiled_loops import compiled_loop, is_ready, never
from ..sparse.neuron_graph import NeuronGraph, from_layers

__all__ = ["compiled", "is_ready", "never", "one_connection"]

compiled = compiled_loop()


def one_connection() -> NeuronGraph:
    """The smallest network that has work: loops that are compiled for it are compiled for all."""
    return from_layers([np.ones((1, 1), dtype=np.bool_)])
