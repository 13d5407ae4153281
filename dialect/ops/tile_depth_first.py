"""Depth-first layers of a tile: they run neuron by neuron, not one after the other, from some width on."""

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated

from xdsl.ir import Block
from xdsl.parser import AttrParser
from xdsl.utils.exceptions import VerifyException

from ..attributes.depth_first_order import (
    MOST_SLOTS,
    DepthFirstOrderAttr,
    Transposed,
    verify_depth_first_order,
)
from ..attributes.latencies import Times
from ..record import Record, Text, written
from ..tensors import shape_of
from .tile_chain import chain_of, weighted_graph_of

if TYPE_CHECKING:
    from .layers import LinearOp


def parse_numbers(parser: AttrParser) -> range:
    """Parse the first number and the last one: `0 to 11`."""
    first = parser.parse_integer()
    parser.parse_keyword("to")
    return range(first, parser.parse_integer() + 1)


def numbers_text(numbers: range) -> str:
    """Return the first number and the last one."""
    return f"{numbers.start} to {numbers.stop - 1}"


class LayerGroupAttr(
    Record,
    text="layers {layers}, [predicted {predicted}, ][kilobytes {kilobytes}, ][measured {measured}, ]"
    "[{transposed_inputs}, ][{transposed_outputs}, ]{reason}, {neuron_order}",
):
    """Layers of a chain, counted from 0, that run together in a depth-first order, and why.

    ```mlir
    #pebble.layer_group<layers 0 to 11, predicted [64: 20390.0], kilobytes [64: 812.0], "3210 slots; ...",
        runs dense<...>, order dense<...>, slots dense<...>>
    ```

    The neurons of the order are the inputs of the first layer, then the outputs of each. Numbers may be missing.
    With `transposed_inputs` or `transposed_outputs` before the reason, see `Transposed`: only the first layer's inputs
    can come from rows of the batch, only the last one's outputs go there.
    """

    name = "pebble.layer_group"

    layers: Annotated[range, written(parse_numbers, numbers_text)]
    """The numbers of the layers."""
    reason: Text
    neuron_order: DepthFirstOrderAttr
    predicted: Times = field(default_factory=dict[int, float])
    """Microseconds of the group's tiles by width."""
    kilobytes: Times = field(default_factory=dict[int, float])
    """Predicted to come from beyond the second-level cache, or to go there, connections left out."""
    measured: Times = field(default_factory=dict[int, float])
    """As `predicted`, by the clock."""
    transposed_inputs: bool = False
    transposed_outputs: bool = False

    @property
    def transposed(self) -> Transposed:
        """Whether inputs come from rows of the batch, and outputs go there."""
        return Transposed(self.transposed_inputs, self.transposed_outputs)

    def verify(self) -> None:
        if self.layers.start < 0 or not self.layers:
            raise VerifyException(f"expected ascending numbers of layers, got {numbers_text(self.layers)}")


class DepthFirstAttr(Record, text="from {width}, {groups}"):
    """The groups of layers that run depth first in tiles from some width on: `#pebble.depth_first<from 64, [...]>`."""

    name = "pebble.depth_first"

    width: int
    """The least width in batch columns."""
    groups: Sequence[LayerGroupAttr]
    """Groups that follow each other."""

    def group_of(self, layer: int, width: int) -> LayerGroupAttr | None:
        """Return the group of a layer in tiles of a width; None where it runs by itself."""
        if width < self.width:
            return None
        return next((group for group in self.groups if layer in group.layers), None)

    def verify(self) -> None:
        numbers = [layer for group in self.groups for layer in group.layers]
        if not numbers or numbers != sorted(set(numbers)):
            raise VerifyException("groups of layers that do not follow each other")


def verify_depth_first(body: Block, schedule: DepthFirstAttr) -> None:
    """Check that the groups are layers of a chain, and that each order computes them.

    Raises:
        VerifyException: they are not; names a layer or a neuron.
    """
    layers: list[LinearOp] = chain_of(body)
    if not layers:
        raise VerifyException("only chains of layers run depth first")
    for group in schedule.groups:
        first, last, words = group.layers.start, group.layers[-1], numbers_text(group.layers)
        if last >= len(layers):
            raise VerifyException(f"layers {words} of {len(layers)}")
        if (group.transposed_inputs and first) or (group.transposed_outputs and last < len(layers) - 1):
            raise VerifyException("only the first layer reads rows, and only the last one writes them")
        if layers[0].times is not None:
            _verify_on_codes(group, layers[first : last + 1])
        try:
            network = weighted_graph_of(layers[first : last + 1])
        except ValueError as error:
            raise VerifyException(f"layers {words}: {error}") from error
        verify_depth_first_order(network.graph, group.neuron_order)


def _verify_on_codes(group: LayerGroupAttr, layers: "Sequence[LinearOp]") -> None:
    """Check that lines of codes, those of inputs and outputs among them, have numbers of 16 bits."""
    if any(group.transposed):
        raise VerifyException("expected a group of layers on codes that transposes no rows")
    lines = shape_of(layers[0].weight)[0] + group.neuron_order.slot_count + shape_of(layers[-1].weight)[1]
    if lines > MOST_SLOTS:
        raise VerifyException(f"expected up to {MOST_SLOTS} inputs, slots and outputs of layers on codes, got {lines}")
