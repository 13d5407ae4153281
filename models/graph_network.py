"""Graph networks on graphs of a seed: message passing as exporters write it for a graph that is fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, isqrt
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from .graph_builder import GraphBuilder, Output
from .pruned_weights import random_bias
from .recipe import require, require_at_least

if TYPE_CHECKING:
    import onnx_ir as ir

Indices = NDArray[np.int64]

START: Final = {"add": 0.0, "max": float(np.finfo(np.float32).min)}
"""Number that a sum, or a maximum, over edges starts from."""

KINDS: Final = ("gcn", "sage", "gin", "gat")
GRAPHS: Final = ("power_law", "uniform", "geometric", "grid", "road")

SLOPE: Final = 0.2
"""Slope of the scores of attention below 0."""

ROADS: Final = 0.7
"""Share of the edges of a grid that a network of roads keeps."""

EXPONENT: Final = 2.1
"""Exponent of the power law that degrees follow."""


@dataclass(frozen=True)
class GraphNetwork:
    """Graph network of some `kind` (gcn, sage, gin, gat) with these `widths` on a `graph` of a seed.

    The graph is power_law, uniform (neighbours at random), geometric (neighbours near each other), grid, or road (a
    grid with most edges gone), with about `degree` edges to a node, in both directions. Attention (gat) has as many of
    up to `heads` heads as divide a width.
    """

    kind: str = "gcn"
    graph: str = "power_law"
    nodes: int = 1000
    degree: float = 8.0
    widths: tuple[int, ...] = (32, 16, 8)
    heads: int = 8

    def __post_init__(self) -> None:
        require(self.kind in KINDS, "kind", self.kind, ", ".join(KINDS))
        require(self.graph in GRAPHS, "graph", self.graph, ", ".join(GRAPHS))
        require_at_least(1, nodes=self.nodes, heads=self.heads)
        require(self.degree >= 0, "degree", self.degree, "0 or more")
        require(len(self.widths) > 1 and min(self.widths) > 0, "widths", self.widths, "two or more, each 1 or more")

    def edges(self, rng: np.random.Generator) -> Indices:
        """Return sources and targets [2, edges], each edge in both directions."""
        pairs = _pairs(self, rng)
        return np.concatenate((pairs, pairs[::-1]), axis=1)

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [nodes, first width] -> y [nodes, last width]."""
        edges = self.edges(rng)
        builder = GraphBuilder()
        layer = _Layers(self, builder, edges, rng)
        value = builder.input("x", (self.nodes, self.widths[0]))
        for number, widths in enumerate(pairwise(self.widths)):
            value = layer.added(value, widths, f"layers.{number}")
            if number < len(self.widths) - 2:
                value = builder.op("Relu", [value], f"/layers.{number}/Relu")
        return builder.model("graph_network", {"y": Output(value, (self.nodes, self.widths[-1]))})


def _pairs(network: GraphNetwork, rng: np.random.Generator) -> Indices:
    """Return the ends of each edge [2, edges], in one direction."""
    nodes, count = network.nodes, int(network.nodes * network.degree / 2)
    if network.graph == "power_law":
        weights = (np.arange(nodes) + 10.0) ** (-1 / (EXPONENT - 1))
        chosen = rng.choice(nodes, (2, count), p=weights / weights.sum())
        return np.asarray(rng.permutation(nodes)[chosen], dtype=np.int64)
    if network.graph == "uniform":
        return rng.integers(0, nodes, (2, count))
    if network.graph == "geometric":
        order = np.argsort(rng.random(nodes))
        first = rng.integers(0, nodes, count)
        reach = np.maximum(1, np.abs(rng.standard_normal(count) * network.degree)).astype(np.int64)
        return np.asarray(order[np.stack((first, (first + reach) % nodes))], dtype=np.int64)
    side = max(1, isqrt(nodes))
    numbers = np.arange(nodes)
    right, below = numbers[(numbers + 1) % side > 0], numbers[numbers + side < nodes]
    right = right[right + 1 < nodes]
    pairs = np.concatenate((np.stack((right, right + 1)), np.stack((below, below + side))), axis=1)
    share = 1.0 if network.graph == "grid" else ROADS
    return pairs[:, rng.random(pairs.shape[1]) < share]


@dataclass(frozen=True)
class _Layers:
    """Layers of a kind over one graph."""

    network: GraphNetwork
    builder: GraphBuilder
    edges: Indices
    rng: np.random.Generator

    def added(self, x: ir.Value, widths: tuple[int, int], name: str) -> ir.Value:
        builder, (inputs, outputs) = self.builder, widths
        bias = random_bias(outputs, self.rng)
        match self.network.kind:
            case "gcn":
                product = builder.op("MatMul", [x, self._weight(widths, f"{name}.weight")], f"/{name}/MatMul")
                sums = self._sums(product, outputs, name)
                return builder.op("Add", [sums, builder.constant(f"{name}.bias", bias)], f"/{name}/Add")
            case "gat":
                means = self._attended(x, widths, name)
                return builder.op("Add", [means, builder.constant(f"{name}.bias", bias)], f"/{name}/Add")
            case "sage":
                sums = self._sums(x, inputs, name)
                near = builder.linear(sums, self._weight_array(widths).T, bias, f"{name}.near")
                own = builder.op("MatMul", [x, self._weight(widths, f"{name}.own")], f"/{name}/MatMul")
                return builder.op("Add", [near, own], f"/{name}/Add")
            case _:
                own = builder.op("Add", [self._sums(x, inputs, name), x], f"/{name}/Add")
                return builder.linear(own, self._weight_array(widths).T, bias, name)

    def _attended(self, x: ir.Value, widths: tuple[int, int], name: str) -> ir.Value:
        """Return means over the edges, weighted by a softmax of scores in each head."""
        nodes, outputs = self.network.nodes, widths[1]
        sources, targets = (np.concatenate((ends, np.arange(nodes))) for ends in self.edges)
        heads = gcd(self.network.heads, outputs)
        size = outputs // heads
        op, numbers, scattered = _Attention(self.builder, name, targets).parts
        product = op("MatMul", [x, self._weight(widths, f"{name}.weight")])
        view = op("Reshape", [product, numbers((nodes, heads, size))])
        scores: list[ir.Value] = []
        for end, index in (("source", sources), ("target", targets)):
            factor = self.rng.standard_normal((1, heads, size), dtype=np.float32)
            scaled = op("Mul", [view, self.builder.constant(f"{name}.{end}", factor)])
            summed = op("ReduceSum", [scaled, numbers([-1])], keepdims=0)
            scores.append(op("Gather", [summed, numbers(index)], axis=0))
        logits = op("LeakyRelu", [op("Add", scores)], alpha=SLOPE)
        largest = op("Gather", [scattered(logits, (nodes, heads), "max"), numbers(targets)], axis=0)
        powers = op("Exp", [op("Sub", [logits, largest])])
        totals = op("Gather", [scattered(powers, (nodes, heads), "add"), numbers(targets)], axis=0)
        shares = op("Unsqueeze", [op("Div", [powers, totals]), numbers([-1])])
        messages = op("Mul", [shares, op("Gather", [view, numbers(sources)], axis=0)])
        sums = scattered(messages, (nodes, heads, size), "add")
        return op("Reshape", [sums, numbers((nodes, outputs))])

    def _weight_array(self, widths: tuple[int, int]) -> NDArray[np.float32]:
        scale = np.float32(1 / np.sqrt(widths[0]))
        return self.rng.standard_normal(widths, dtype=np.float32) * scale

    def _weight(self, widths: tuple[int, int], name: str) -> ir.Value:
        return self.builder.constant(name, self._weight_array(widths))

    def _sums(self, x: ir.Value, features: int, name: str) -> ir.Value:
        """Return sums over the edges, weighted as the kind has it."""
        builder, nodes, (sources, targets) = self.builder, self.network.nodes, self.edges
        if self.network.kind == "gcn":
            sources, targets = (np.concatenate((ends, np.arange(nodes))) for ends in (sources, targets))
        degrees = np.maximum(1, np.bincount(targets, minlength=nodes))
        value = builder.op("Gather", [x, builder.constant(f"{name}.sources", sources)], f"/{name}/Gather")
        if self.network.kind != "gin":
            roots = np.sqrt(degrees)
            weights = 1 / (roots[sources] * roots[targets] if self.network.kind == "gcn" else degrees[targets])
            factor = builder.constant(f"{name}.weights", weights.astype(np.float32).reshape(-1, 1))
            value = builder.op("Mul", [factor, value], f"/{name}/Mul")
        column = builder.constant(f"{name}.targets", targets.reshape(-1, 1))
        shape = builder.constant(f"{name}.spread", np.array([len(targets), features]))
        index = builder.op("Expand", [column, shape], f"/{name}/Expand")
        sizes = builder.constant(f"{name}.sizes", np.array([nodes, features]))
        start = builder.op("ConstantOfShape", [sizes], f"/{name}/ConstantOfShape")
        attributes = {"axis": 0, "reduction": "add"}
        return builder.op("ScatterElements", [start, index, value], f"/{name}/ScatterElements", attributes)


class _Attention:
    """Nodes of an attention over edges, with names in the order in which they are made."""

    def __init__(self, builder: GraphBuilder, name: str, targets: Indices) -> None:
        self.builder, self.name, self.targets = builder, name, targets
        self.count = 0
        self.parts = self.op, self.numbers, self.scattered

    def op(self, op_type: str, inputs: Sequence[ir.Value], **attributes: float | str | ir.TensorProtocol) -> ir.Value:
        self.count += 1
        return self.builder.op(op_type, inputs, f"/{self.name}/{op_type}_{self.count}", attributes)

    def numbers(self, values: Sequence[int] | Indices) -> ir.Value:
        self.count += 1
        return self.builder.constant(f"{self.name}.numbers.{self.count}", np.asarray(values, np.int64))

    def scattered(self, values: ir.Value, size: tuple[int, ...], reduction: str) -> ir.Value:
        """Return sums or maxima [size] over the edges that end at each node."""
        import onnx_ir as ir

        fill = ir.tensor(np.array([START[reduction]], np.float32))
        start = self.op("ConstantOfShape", [self.numbers(size)], value=fill)
        column = self.numbers(self.targets.reshape(-1, *(1 for _ in size[1:])))
        index = self.op("Expand", [column, self.numbers((len(self.targets), *size[1:]))])
        return self.op("ScatterElements", [start, index, values], axis=0, reduction=reduction)
