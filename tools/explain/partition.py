"""Values and messages that a partition of a model's neurons sends, layer by layer, beside those of random rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table
from xdsl.dialects.builtin import ModuleOp

from ...dialect.provenance import node_name
from ...passes.analysis.layer_chains import layer_chains, patterns_of
from ...passes.analysis.partitioned_layers import module_traffic, partition_module
from ...pipeline import build
from ...theory.partition.partition import LayerTraffic, Partition, random_rows
from ...theory.partition.search import PartitionRequest, find_partition
from ..console.console import console


@dataclass(frozen=True)
class PartitionedLayer:
    """A layer, its connections, and what it costs in our partition and with random rows."""

    name: str
    connections: int
    found: LayerTraffic
    random: LayerTraffic


def explain_partition(module: ModuleOp, request: PartitionRequest) -> tuple[PartitionedLayer, ...]:
    """Return the cost of each linear layer.

    Raises:
        ValueError: the model has no linear layer.
    """
    found = partition_module(
        module, request.part_count, lambda patterns, owners: find_partition(patterns, request, owners)
    )
    layers = [layer for chain in layer_chains(module) for layer in chain]
    patterns = patterns_of(layers)
    rng = np.random.default_rng(request.seed)
    dealt = [random_rows([pattern], request.part_count, rng).owners[1] for pattern in patterns]
    random = Partition(request.part_count, (found.owners[0], *dealt))
    costs = zip(module_traffic(module, found), module_traffic(module, random), strict=True)
    names = [node_name(layer) or f"linear_{index}" for index, layer in enumerate(layers)]
    return tuple(
        PartitionedLayer(name, len(pattern.indices), *cost)
        for name, pattern, cost in zip(names, patterns, costs, strict=True)
    )


def partition_table(layers: Sequence[PartitionedLayer], part_count: int) -> Table:
    """Return a line for each layer and one for all: values sent for a sample, messages, fullest part above the mean."""
    table = Table(box=None, header_style="bold", pad_edge=False, title_justify="left")
    table.title = f"values sent for a sample, {part_count} parts"
    table.add_column("layer", overflow="fold")
    headers = ("connections", "sent", "random\nrows", "messages", "random\nrows", "imbalance", "random\nrows")
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    for layer in layers:
        table.add_row(layer.name, f"{layer.connections:,}", *_words([layer.found], [layer.random]))
    table.add_section()
    total = sum(layer.connections for layer in layers)
    sums = _words([layer.found for layer in layers], [layer.random for layer in layers])
    table.add_row("all", f"{total:,}", *sums)
    return table


def _words(found: Sequence[LayerTraffic], random: Sequence[LayerTraffic]) -> list[str]:
    volumes = [sum(cost.volume for cost in costs) for costs in (found, random)]
    messages = [sum(cost.messages for cost in costs) for costs in (found, random)]
    fullest = [max(cost.imbalance for cost in costs) for costs in (found, random)]
    numbers = f"{volumes[0]:,}", f"{volumes[1]:,}", f"{messages[0]:,}", f"{messages[1]:,}"
    return [*numbers, *(f"{100 * one:.1f} %" for one in fullest)]


def explain_partition_and_print(model: Path, request: PartitionRequest) -> None:
    """Show what a partition of a model sends.

    Raises:
        ModelError: the model is unreadable or not covered.
        ValueError: the model has no linear layer.
    """
    console.print(partition_table(explain_partition(build(model), request), request.part_count))
