"""A model as graphs of neurons and connections: what the I/O theory, reports and saved schedules speak of."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp

from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.foreign import ForeignOp
from ...dialect.ops.movement import ReshapeOp
from ...dialect.ops.network import NetworkOp
from ...export.sparse_networks.node_format import DOMAIN
from ...frontend.import_model import Source
from ...options import Options
from ...pipeline import build, run_stages
from ...sparse.neuron_graph import NeuronGraph

GRAPHS: Final = Options("neurons")


@dataclass(frozen=True)
class FlatModel:
    """A model after the simplifying passes: its graphs, and the counts of ops that cut the model into them."""

    networks: tuple[NeuronGraph, ...]
    cuts: dict[str, int]

    @property
    def graph_line(self) -> str:
        """The number of graphs and what cuts the model into them, as a sentence."""
        count = len(self.networks)
        what = ", ".join(f"{name} ({times})" for name, times in self.cuts.items())
        graphs = f"{count} graph{'' if count == 1 else 's'} of neurons"
        return f"{graphs}; not counted, as they are no connections of neurons: {what}" if what else graphs

    @property
    def obstacle(self) -> str:
        """The reason why there is no graph, as words behind the name of the model."""
        if any(name.startswith(f"{DOMAIN}::") for name in self.cuts):
            return "was optimized before: expected the original"
        return "has no linear layer of floats with constant weights"


def flat_model(source: Source) -> FlatModel:
    """Return the graphs of a model.

    Raises:
        ModelError: the model is unreadable.
    """
    return flattened(build(source, GRAPHS, until="simplify", foreign="keep"), GRAPHS)


def flattened(module: ModuleOp, options: Options) -> FlatModel:
    """Return the graphs of a simplified module, which is of no use afterwards; their kernels are of no interest."""
    run_stages(module, replace(options, goal="neurons"), after="choose", until="flatten")
    networks = tuple(op.graph for op in module.walk() if isinstance(op, NetworkOp))
    return FlatModel(networks, _cuts(module))


def _cuts(module: ModuleOp) -> dict[str, int]:
    """Return the kinds of ops outside of graphs; what only gives values another shape cuts nothing."""
    silent = ModuleOp | FuncOp | ReturnOp | ConstantOp | SparseConstantOp | ReshapeOp | NetworkOp
    others = [op for op in module.walk() if not isinstance(op, silent)]
    names = [op.operator.data if isinstance(op, ForeignOp) else op.name.removeprefix("pebble.") for op in others]
    return dict(Counter(names).most_common())


def join(networks: tuple[NeuronGraph, ...]) -> NeuronGraph:
    """Return the graphs as one, the neurons of each numbered behind those of the one before.

    Graphs that run one after the other transfer as much as alone, since nothing stays in fast memory between them.
    """
    firsts = np.cumsum([0, *(network.neuron_count for network in networks)])

    def numbered(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.concatenate([part + first for part, first in zip(parts, firsts, strict=False)]).astype(np.int64)

    return NeuronGraph(
        int(firsts[-1]),
        numbered([network.sources for network in networks]),
        numbered([network.targets for network in networks]),
        numbered([network.inputs for network in networks]),
        numbered([network.outputs for network in networks]),
    )


def join_orders(networks: tuple[NeuronGraph, ...], orders: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the orders of graphs, run one after the other, as one of the joined graph. Shape [W]."""
    firsts = np.cumsum([0, *(network.connection_count for network in networks)])
    return np.concatenate([order + first for order, first in zip(orders, firsts, strict=False)]).astype(np.int64)
