"""Partitions of the layers of a module, by `redpebble.theory.partition.partition`, and their attributes."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialect.attributes.partition import PartitionAttr
from ...dialect.tensors import shape_of
from ...theory.partition.partition import (
    LayerPattern,
    LayerShare,
    LayerTraffic,
    Owners,
    Partition,
    all_sent,
    connections_of_parts,
    count_sent,
    free_inputs,
    local_connections,
    slices,
    traffic_of,
)
from .layer_chains import layer_chains, patterns_of, source_of

Search = Callable[[Sequence[LayerPattern], Owners], Partition]
"""Finds a partition of a chain, for the owners of its inputs, which it chooses where they are `FREE`."""


def partition_module(module: ModuleOp, part_count: int, search: Search) -> Partition:
    """Return a partition of all layers of a module: level 0 are its inputs one after the other.

    The first layer that reads an input lets the search choose who owns it. Other inputs are slices.

    Raises:
        VerifyException: a weight is no constant, or the size of an input is not known.
        ValueError: the module has no linear layer, or what the search refuses.
    """
    widths = _input_widths(module)
    inputs: dict[SSAValue, Owners] = {}
    owners: list[Owners] = []
    for chain in layer_chains(module):
        patterns = patterns_of(chain)
        source, width = source_of(chain[0].x), patterns[0].column_count
        # owners of what is needed as a whole make no difference
        given = inputs.get(source, free_inputs(width) if source in widths else slices(width, part_count))
        found = search(patterns, given)
        if source in widths:
            inputs[source] = found.owners[0]
        owners += found.owners[1:]
    if not owners:
        raise ValueError("the model has no linear layer, there is nothing to partition")
    return Partition(part_count, (_joined(widths, inputs, part_count), *owners))


def layer_shares(module: ModuleOp, partition: Partition) -> Iterator[LayerShare]:
    """Give what each part does in each linear layer.

    A layer that reads neither inputs of the network nor just the layer before it needs whole values.
    """
    count = partition.part_count
    inputs = _split(_input_widths(module), partition.owners[0])
    levels = iter(partition.owners[1:])
    for chain in layer_chains(module):
        given = inputs.get(source_of(chain[0].x))
        for pattern in patterns_of(chain):
            owners = next(levels)
            own = np.zeros(count, dtype=np.int64)
            if given is None:
                sent = all_sent(pattern.column_count, count)
            else:
                sent = count_sent(pattern, given, owners, count)
                own = local_connections(pattern, given, owners, count)
            yield LayerShare(sent, connections_of_parts(pattern, owners, count), own)
            given = owners


def module_traffic(module: ModuleOp, partition: Partition) -> tuple[LayerTraffic, ...]:
    """Return what each linear layer costs."""
    return tuple(traffic_of(share.sent, share.connections) for share in layer_shares(module, partition))


def write_partition(module: ModuleOp, partition: Partition) -> None:
    """Write the owners of its outputs, and what it costs, on every linear layer."""
    layers = [op for chain in layer_chains(module) for op in chain]
    for layer, owners, cost in zip(layers, partition.owners[1:], module_traffic(module, partition), strict=True):
        costs = cost.volume, cost.messages, cost.most_connections
        layer.partition = PartitionAttr(partition.part_count, owners, *costs)


def _input_widths(module: ModuleOp) -> dict[SSAValue, int]:
    """Return the features of each input of the network."""
    func = next(op for op in module.walk() if isinstance(op, FuncOp))
    widths: dict[SSAValue, int] = {value: (shape_of(value) or (1,))[-1] for value in func.args}
    if any(width < 0 for width in widths.values()):
        raise VerifyException("expected inputs with a known last axis, got another")
    return widths


def _joined(widths: Mapping[SSAValue, int], inputs: Mapping[SSAValue, Owners], part_count: int) -> Owners:
    """Return the owners of all inputs one after the other; those of no known owners are slices."""
    found = [inputs.get(value, slices(width, part_count)) for value, width in widths.items()]
    return np.concatenate([np.zeros(0, dtype=np.int32), *found])


def _split(widths: Mapping[SSAValue, int], owners: Owners) -> dict[SSAValue, Owners]:
    """Undo `_joined`."""
    ends = np.cumsum([*widths.values()])
    return {value: owners[end - widths[value] : end] for value, end in zip(widths, ends, strict=True)}
