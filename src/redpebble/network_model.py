"""A model as graphs of neurons and connections: what the I/O theory, reports and saved schedules speak of."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp

from redpebble.compiler import context, native_passes, simplifying_passes
from redpebble.dialect.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.foreign import ForeignOp
from redpebble.dialect.movement import ReshapeOp
from redpebble.dialect.network import NetworkOp
from redpebble.dialect.provenance import ORDER
from redpebble.dialect.tile import TileOp
from redpebble.frontend.importing import Source, import_model
from redpebble.group_timing import measure_groups
from redpebble.lowering.layer_report import LayerReport, layer_reports
from redpebble.passes.annotate_io_bounds import AnnotateIoBounds
from redpebble.passes.choose_kernels import ChooseKernels
from redpebble.passes.flatten_network import FlattenNetwork
from redpebble.passes.network_view import network_of_op
from redpebble.passes.pipeline import run_passes
from redpebble.passes.reorder_neurons import ReorderNeurons
from redpebble.runtime.cache import default_folder
from redpebble.runtime.machine_code import host_target
from redpebble.theory.network import Network
from redpebble.tuning import Tuning, measure_kernels


@dataclass(frozen=True)
class FlatModel:
    """A model after the portable passes: its linear layers, its graphs, and how often what cuts it into them occurs."""

    layers: tuple[LayerReport, ...]
    networks: tuple[Network, ...]
    cuts: dict[str, int]
    order: str = ""
    """What orders of its hidden neurons were tried and are predicted to gain, where the network has one."""

    @property
    def graph_line(self) -> str:
        """How many graphs there are and why, for a person."""
        count = len(self.networks)
        what = ", ".join(f"{name} ({times})" for name, times in self.cuts.items())
        graphs = f"{count} graph{'' if count == 1 else 's'} of neurons"
        return f"{graphs}; no connections are: {what}" if what else graphs


def flat_model(source: Source, cache: Path | None = None) -> FlatModel:
    """Return the graphs of a model; kernels are those of this machine, as far as `cache` (the user's) knows it.

    Raises:
        ModelError: the model is unreadable.
    """
    module = import_model(source, foreign="keep").module
    run_passes(context(), module, simplifying_passes())
    known = Tuning.recalled(host_target(), default_folder() if cache is None else cache)
    # layers are those that `compile` runs; the numbers of neurons in graphs stay those of the model
    ordered = module.clone()
    run_passes(context(), ordered, [ReorderNeurons.on(known.machine)])
    kernels = ChooseKernels.on(known.machine, measure_kernels(ordered, known))
    run_passes(context(), ordered, (kernels, AnnotateIoBounds()))
    run_passes(context(), module, (FlattenNetwork(),))
    networks = tuple(network_of_op(op) for op in module.walk() if isinstance(op, NetworkOp))
    order = ordered.attributes.get(ORDER)
    # after what is known of the layers: tiles are another order of the ops
    line = order.data if isinstance(order, StringAttr) else ""
    return FlatModel(_scheduled_reports(ordered), networks, _cuts(module), line)


def _scheduled_reports(module: ModuleOp) -> tuple[LayerReport, ...]:
    """Return the lines of all layers; those that run depth first with others are measured."""
    if any(isinstance(op, ForeignOp) for op in module.walk()):
        return layer_reports(module)
    scheduled = module.clone()
    run_passes(context(), scheduled, native_passes())
    if not any(isinstance(op, TileOp) and op.depth_first is not None for op in scheduled.walk()):
        return layer_reports(module)
    measure_groups(scheduled, host_target())
    return layer_reports(scheduled)


def _cuts(module: ModuleOp) -> dict[str, int]:
    """Return the kinds of ops outside of graphs; what only gives values another shape cuts nothing."""
    silent = ModuleOp | FuncOp | ReturnOp | ConstantOp | SparseConstantOp | ReshapeOp | NetworkOp
    others = [op for op in module.walk() if not isinstance(op, silent)]
    names = [op.operator.data if isinstance(op, ForeignOp) else op.name.removeprefix("pebble.") for op in others]
    return dict(Counter(names).most_common())


def join(networks: tuple[Network, ...]) -> Network:
    """Return the graphs as one, the neurons of each numbered behind those of the one before.

    Run one after the other they transfer what they transfer alone, because nothing stays in fast memory between them.
    """
    firsts = np.cumsum([0, *(network.neuron_count for network in networks)])

    def numbered(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.concatenate([part + first for part, first in zip(parts, firsts, strict=False)]).astype(np.int64)

    return Network(
        int(firsts[-1]),
        numbered([network.sources for network in networks]),
        numbered([network.targets for network in networks]),
        numbered([network.inputs for network in networks]),
        numbered([network.outputs for network in networks]),
    )


def join_orders(networks: tuple[Network, ...], orders: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the orders of graphs, run one after the other, as one of the joined graph. Shape [W]."""
    firsts = np.cumsum([0, *(network.connection_count for network in networks)])
    return np.concatenate([order + first for order, first in zip(orders, firsts, strict=False)]).astype(np.int64)
