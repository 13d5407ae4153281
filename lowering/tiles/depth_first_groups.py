"""The groups of layers of a tile that run depth first at some width, as its code and its memory plan need them."""

from collections.abc import Mapping
from typing import NamedTuple

from xdsl.ir import SSAValue

from ...dialect.attributes.depth_first_order import DepthFirstOrderAttr, Transposed
from ...dialect.attributes.weighted_graph import WeightedGraph
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.tile import TileOp
from ...dialect.ops.tile_chain import chain_of, weighted_graph_of


class LayerGroup(NamedTuple):
    """Layers that follow each other, and the depth-first order in which they run together."""

    layers: tuple[LinearOp, ...]
    neuron_order: DepthFirstOrderAttr
    transposed: Transposed

    @property
    def first(self) -> LinearOp:
        """The layer whose operand the group reads."""
        return self.layers[0]

    @property
    def last(self) -> LinearOp:
        """The layer whose result the group writes."""
        return self.layers[-1]

    def graph(self) -> WeightedGraph:
        """Return the group as a graph of neurons."""
        return weighted_graph_of(self.layers)

    @property
    def transposed_values(self) -> set[SSAValue]:
        """The values that the group reads from rows of the batch, or writes there."""
        ends = zip((self.first.x, self.last.result), self.transposed, strict=True)
        return {value for value, transposed in ends if transposed}


def groups_at(op: TileOp, width: int) -> Mapping[object, LayerGroup]:
    """Return the group of each layer that does not run by itself in tiles of `width` columns."""
    if op.depth_first is None or width < op.depth_first.width:
        return {}
    layers = chain_of(op.body.block)
    groups = (
        LayerGroup(tuple(layers[number] for number in group.layers), group.neuron_order, group.transposed)
        for group in op.depth_first.groups
    )
    return {layer: group for group in groups for layer in group.layers}
