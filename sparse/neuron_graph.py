"""A sparse feed-forward network as one graph: neurons with global ids, and the connections between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .csr import CsrPattern

NEIGHBOURS = 16
"""Inputs or outputs, beside each other, that come from rows of a batch or go there together: a line of a row."""


class Matrix(Protocol):
    """Weight matrix, [inputs, outputs]: the methods needed of it, which numpy arrays and scipy sparse matrices have."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """Inputs and outputs."""
        ...

    def nonzero(self) -> tuple[NDArray[Any], ...]:
        """Rows [entries] and columns [entries] of the non-zeros."""
        ...


@dataclass(frozen=True, eq=False)
class NeuronGraph:
    """A directed acyclic graph of neurons; connection c runs from `sources[c]` to `targets[c]`.

    Every neuron that is not an input has a bias, also one without incoming connections. `inputs` and `outputs` hold
    neuron ids. A connection order is a permutation of the connection ids 0 .. W - 1, shape [W], int64.
    """

    neuron_count: int
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]

    def check(self) -> None:
        """Check ids, duplicates and acyclicity.

        Raises:
            ValueError: an id out of range, a neuron listed twice or as both input and output, a connection listed
                twice or into an input, or a cycle.
        """
        for name in ("sources", "targets", "inputs", "outputs"):
            _check_ids(name, getattr(self, name), self.neuron_count)
        if len(self.sources) != len(self.targets):
            raise ValueError(f"{len(self.sources)} sources and {len(self.targets)} targets")
        _check_ends(self)
        _check_connections(self)
        if len(self.topological_order) < self.neuron_count:
            stuck = int(np.setdiff1d(np.arange(self.neuron_count), self.topological_order)[0])
            raise ValueError(f"neuron {stuck} is on a cycle or behind one")

    @property
    def connection_count(self) -> int:
        """W."""
        return len(self.sources)

    @cached_property
    def in_degrees(self) -> NDArray[np.int64]:
        """Incoming connections of each neuron, shape [N]."""
        return np.bincount(self.targets, minlength=self.neuron_count).astype(np.int64)

    @cached_property
    def out_degrees(self) -> NDArray[np.int64]:
        """Outgoing connections of each neuron, shape [N]."""
        return np.bincount(self.sources, minlength=self.neuron_count).astype(np.int64)

    @cached_property
    def incoming(self) -> CsrPattern:
        """The connections into each neuron, ids ascending, [neurons, connections]."""
        return _grouped(self.targets, self.in_degrees)

    @cached_property
    def outgoing(self) -> CsrPattern:
        """The connections out of each neuron, ids ascending, [neurons, connections]."""
        return _grouped(self.sources, self.out_degrees)

    @cached_property
    def is_input(self) -> NDArray[np.bool_]:
        """Shape [N]."""
        return _mask(self.inputs, self.neuron_count)

    @cached_property
    def is_output(self) -> NDArray[np.bool_]:
        """Shape [N]."""
        return _mask(self.outputs, self.neuron_count)

    @cached_property
    def is_moved(self) -> NDArray[np.bool_]:
        """Neurons with a connection, and outputs; the others never enter fast memory. Shape [N]."""
        return (self.in_degrees + self.out_degrees > 0) | self.is_output

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """Connections on the longest path that ends in each neuron, shape [N]."""
        return _depths_and_order(self)[0]

    @cached_property
    def topological_order(self) -> NDArray[np.int64]:
        """Neuron ids [N], sources before targets: ids ascending where that is possible, else by depth, then id."""
        if bool(np.all(self.sources < self.targets)):
            return np.arange(self.neuron_count, dtype=np.int64)
        return _depths_and_order(self)[1]

    @cached_property
    def bandwidth(self) -> int:
        """Largest |source id - target id| over the connections; 0 without any."""
        return int(np.max(np.abs(self.sources - self.targets), initial=0))


def from_layers(weights: Sequence[Matrix]) -> NeuronGraph:
    """The network of a chain of layers, neurons numbered layer by layer.

    Args:
        weights: one matrix a layer, [inputs, outputs], scipy sparse or dense; every non-zero is a connection.

    Raises:
        ValueError: no layer, or a layer whose input width is not the width before it.
    """
    if not weights:
        raise ValueError("expected a network of one layer or more, got none")
    widths: list[int] = [int(weights[0].shape[0]), *(int(weight.shape[1]) for weight in weights)]
    for layer, weight in enumerate(weights):
        if weight.shape[0] != widths[layer]:
            raise ValueError(f"layer {layer} takes {weight.shape[0]} values, the width before it is {widths[layer]}")
    firsts = np.concatenate(([0], np.cumsum(widths)))
    sources: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int64]] = []
    for layer, weight in enumerate(weights):
        rows, columns = weight.nonzero()
        sources.append(rows.astype(np.int64) + firsts[layer])
        targets.append(columns.astype(np.int64) + firsts[layer + 1])
    return NeuronGraph(
        neuron_count=int(firsts[-1]),
        sources=np.concatenate(sources),
        targets=np.concatenate(targets),
        inputs=np.arange(widths[0], dtype=np.int64),
        outputs=np.arange(firsts[-2], firsts[-1], dtype=np.int64),
    )


def chain_graph(layers: Sequence[CsrPattern[np.integer]]) -> NeuronGraph:
    """The network of layers [outputs, inputs] that read each other, neurons numbered layer by layer.

    Connections are listed by target, then source.
    """
    firsts = np.cumsum([0, *(layer.column_count for layer in layers)])
    sources = [layer.indices + first for layer, first in zip(layers, firsts[:-1], strict=True)]
    targets = [layer.rows + first for layer, first in zip(layers, firsts[1:], strict=True)]
    last = int(firsts[-1])
    count = last + layers[-1].row_count
    return NeuronGraph(
        count,
        np.concatenate(sources).astype(np.int64, copy=False),
        np.concatenate(targets),
        np.arange(layers[0].column_count),
        np.arange(last, count),
    )


def connection_ids(order: ArrayLike) -> NDArray[np.int64]:
    """Return an order that is any sequence of integers as an array of int64; anything else as it is."""
    ids = np.asarray(order)
    return ids.astype(np.int64, copy=False) if ids.dtype.kind in "iu" or not ids.size else ids


def check_order(network: NeuronGraph, order: ArrayLike) -> None:
    """Refuse an order that is no permutation of the connections [W], or not topological.

    Raises:
        ValueError: naming the connection.
    """
    count, order = network.connection_count, connection_ids(order)
    if order.dtype != np.int64 or order.shape != (count,):
        raise ValueError(f"expected an order of integers of shape ({count},), got {order.dtype} of shape {order.shape}")
    times = np.bincount(order[(order >= 0) & (order < count)], minlength=count)
    if np.any(times != 1):
        wrong = int(np.flatnonzero(times != 1)[0])
        raise ValueError(f"connection {wrong} occurs {times[wrong]} times in the order")
    steps = np.empty(count, dtype=np.int64)
    steps[order] = np.arange(count)
    final_after = np.full(network.neuron_count, -1, dtype=np.int64)
    np.maximum.at(final_after, network.targets, steps)
    early = np.flatnonzero(steps < final_after[network.sources])
    if len(early):
        c = int(early[np.argmin(steps[early])])
        source, last = int(network.sources[c]), int(final_after[network.sources[c]])
        raise ValueError(
            f"connection {c} ({source} -> {network.targets[c]}) runs at step {steps[c]}, "
            f"but neuron {source} is final only after step {last}"
        )


def id_array(ids: ArrayLike) -> NDArray[np.int64]:
    """Ids as the int64 array, of their shape, that `NeuronGraph` holds."""
    return np.asarray(ids, dtype=np.int64)


def _mask(ids: NDArray[np.int64], neuron_count: int) -> NDArray[np.bool_]:
    mask = np.zeros(neuron_count, dtype=np.bool_)
    mask[ids] = True
    return mask


def _grouped(keys: NDArray[np.int64], degrees: NDArray[np.int64]) -> CsrPattern:
    return CsrPattern(np.append(0, np.cumsum(degrees)), np.argsort(keys, kind="stable"), len(keys))


def _check_ids(name: str, ids: NDArray[np.int64], neuron_count: int) -> None:
    if ids.dtype != np.int64 or ids.ndim != 1:
        raise ValueError(f"{name}: expected int64 of rank 1, got {ids.dtype} of rank {ids.ndim}")
    outside = ids[(ids < 0) | (ids >= neuron_count)]
    if len(outside):
        raise ValueError(f"{name}: expected neurons from 0 to {neuron_count - 1}, got {outside[0]}")


def _check_ends(network: NeuronGraph) -> None:
    for name, ids in (("inputs", network.inputs), ("outputs", network.outputs)):
        unique, counts = np.unique(ids, return_counts=True)
        if np.any(counts > 1):
            raise ValueError(f"{name} names neuron {unique[counts > 1][0]} twice")
    both = np.intersect1d(network.inputs, network.outputs)
    if len(both):
        raise ValueError(f"neuron {both[0]} is both input and output")


def _check_connections(network: NeuronGraph) -> None:
    sources, targets = network.sources, network.targets
    into_input = np.flatnonzero(network.is_input[targets])
    if len(into_input):
        c = into_input[0]
        raise ValueError(f"connection {c} runs {sources[c]} -> {targets[c]}, into an input")
    keys = sources * network.neuron_count + targets
    by_key = np.argsort(keys, kind="stable")
    twice = np.flatnonzero(np.diff(keys[by_key]) == 0)
    if len(twice):
        c, d = int(by_key[twice[0]]), int(by_key[twice[0] + 1])
        raise ValueError(f"connections {c} and {d} both run {sources[c]} -> {targets[c]}")


def _depths_and_order(network: NeuronGraph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Peel the graph depth by depth; neurons on a cycle or behind one are missing from the order."""
    depths = np.zeros(network.neuron_count, dtype=np.int64)
    waiting = network.in_degrees.copy()
    ready = np.flatnonzero(waiting == 0).astype(np.int64)
    peeled: list[NDArray[np.int64]] = []
    while len(ready):
        depths[ready] = len(peeled)
        peeled.append(ready)
        _, leaving = network.outgoing.entries(ready)
        touched, counts = np.unique(network.targets[leaving], return_counts=True)
        waiting[touched] -= counts
        ready = touched[waiting[touched] == 0]
    return depths, np.concatenate(peeled) if peeled else np.zeros(0, dtype=np.int64)
