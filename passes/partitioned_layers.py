"""Between a module and `redpebble.theory.partition`: layers to partitions, and partitions to attributes of layers."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from redpebble.dialect.layers import LinearOp
from redpebble.dialect.partition import PartitionAttr
from redpebble.dialect.tensors import shape_of
from redpebble.passes.layer_chains import layer_chains, patterns_of, source_of
from redpebble.theory.partition import (
    LayerShare,
    LayerTraffic,
    Owners,
    Partition,
    Pattern,
    all_sent,
    connections_of_parts,
    count_sent,
    local_connections,
    slices,
    traffic_of,
)

Search = Callable[[Sequence[Pattern], Owners], Partition]
"""Finds a partition of a chain, for the owners of its inputs."""


def partition_module(module: ModuleOp, part_count: int, search: Search) -> Partition:
    """Return a partition of all layers of a module: level 0 are its inputs one after the other, as slices.

    Raises:
        VerifyException: a weight is no constant, or the size of an input is not known.
        ValueError: the module has no linear layer, or what the search refuses.
    """
    inputs, first_owners = _inputs(module, part_count)
    owners: list[Owners] = []
    for chain in layer_chains(module):
        patterns = patterns_of(chain)
        source = source_of(chain[0].x)
        # owners of what is needed as a whole make no difference
        given = inputs.get(source, slices(patterns[0].input_count, part_count))
        owners += search(patterns, given).owners[1:]
    if not owners:
        raise ValueError("the model has no linear layer, there is nothing to partition")
    return Partition(part_count, (first_owners, *owners))


def layer_shares(module: ModuleOp, partition: Partition) -> Iterator[LayerShare]:
    """Give what each part does in each linear layer.

    A layer that reads neither inputs of the network nor just the layer before it needs whole values.
    """
    count = partition.part_count
    inputs, _ = _inputs(module, count)
    levels = iter(partition.owners[1:])
    for chain in layer_chains(module):
        given = inputs.get(source_of(chain[0].x))
        for pattern in patterns_of(chain):
            owners = next(levels)
            own = np.zeros(count, dtype=np.int64)
            if given is None:
                sent = all_sent(pattern.input_count, count)
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
        layer.partition = PartitionAttr.of(partition.part_count, owners, costs)


def read_partition(module: ModuleOp) -> Partition | None:
    """Return the partition that is written on the layers of a module, or None where one has none.

    Raises:
        VerifyException: layers have different numbers of parts.
    """
    found = [op.partition for op in module.walk() if isinstance(op, LinearOp)]
    written = [one for one in found if one is not None]
    if not written or len(written) < len(found):
        return None
    counts = {one.part_count.data for one in written}
    if len(counts) > 1:
        raise VerifyException(f"layers of {' and '.join(map(str, sorted(counts)))} parts, expected one number for all")
    part_count = counts.pop()
    _, first_owners = _inputs(module, part_count)
    return Partition(part_count, (first_owners, *(one.array.astype(np.int32) for one in written)))


def _inputs(module: ModuleOp, part_count: int) -> tuple[dict[SSAValue, Owners], Owners]:
    """Return the owners of the features of each input of the network, and of all of them one after the other."""
    func = next(op for op in module.walk() if isinstance(op, FuncOp))
    widths = [(shape_of(value) or (1,))[-1] for value in func.args]
    if any(width < 0 for width in widths):
        raise VerifyException("an input has no known last axis, expected known sizes")
    owners = slices(sum(widths), part_count)
    ends = np.cumsum(widths)
    return {value: owners[end - width : end] for value, width, end in zip(func.args, widths, ends, strict=True)}, owners
