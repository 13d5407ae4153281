"""Depth-first layers of a tile: they run neuron by neuron, not one after the other, from some width on."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, Block, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ..attributes.depth_first_order import DepthFirstOrderAttr, Transposed, verify_depth_first_order
from ..attributes.latencies import TimesAttr
from .tile_chain import chain_of, weighted_graph_of

if TYPE_CHECKING:
    from .layers import LinearOp

TRANSPOSED = ("transposed_inputs", "transposed_outputs")
"""The words for the fields of `Transposed`."""


class GroupNumbers(NamedTuple):
    """Facts of a group's tiles, by their width: microseconds predicted and measured, kilobytes from afar."""

    predicted: Mapping[int, float] = {}
    kilobytes: Mapping[int, float] = {}
    """Predicted to come from beyond the second-level cache, or to go there, connections left out."""
    measured: Mapping[int, float] = {}


@irdl_attr_definition
class LayerGroupAttr(ParametrizedAttribute):
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

    first: IntAttr
    last: IntAttr
    predicted: TimesAttr
    kilobytes: TimesAttr
    measured: TimesAttr
    ends: ArrayAttr[StringAttr]
    """The members of `TRANSPOSED` that hold."""
    reason: StringAttr
    neuron_order: DepthFirstOrderAttr

    @staticmethod
    def of(
        layers: tuple[int, int],
        reason: str,
        neuron_order: DepthFirstOrderAttr,
        transposed: Transposed,
        numbers: GroupNumbers | None = None,
    ) -> "LayerGroupAttr":
        """Return the attribute for the numbers of the first and last layer."""
        predicted, kilobytes, measured = (TimesAttr.of(one) for one in numbers or GroupNumbers())
        ends = ArrayAttr([StringAttr(word) for word, so in zip(TRANSPOSED, transposed, strict=True) if so])
        first, last = map(IntAttr, layers)
        return LayerGroupAttr(first, last, predicted, kilobytes, measured, ends, StringAttr(reason), neuron_order)

    def with_measured(self, measured: Mapping[int, float]) -> "LayerGroupAttr":
        """Return the same with the microseconds that tiles were measured to take."""
        first, last, predicted, kilobytes, _, *rest = self.parameters
        return LayerGroupAttr.new([first, last, predicted, kilobytes, TimesAttr.of(measured), *rest])

    @property
    def transposed(self) -> Transposed:
        """Whether inputs come from rows of the batch, and outputs go there."""
        words = {word.data for word in self.ends}
        return Transposed(*(word in words for word in TRANSPOSED))

    @property
    def layers(self) -> range:
        """The numbers of the layers."""
        return range(self.first.data, self.last.data + 1)

    def verify(self) -> None:
        if not 0 <= self.first.data <= self.last.data:
            raise VerifyException(f"layers {self.first.data} to {self.last.data}, expected ascending numbers")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        return cls.parse_group(parser).parameters

    @classmethod
    def parse_group(cls, parser: AttrParser) -> "LayerGroupAttr":
        """Parse what `print_parameters` prints."""
        with parser.in_angle_brackets():
            parser.parse_keyword("layers")
            first = parser.parse_integer()
            parser.parse_keyword("to")
            last = parser.parse_integer()
            parser.parse_punctuation(",")
            known, ends = dict.fromkeys(GroupNumbers._fields, TimesAttr.of({})), list[StringAttr]()
            while (word := parser.parse_optional_identifier()) is not None:
                if word in TRANSPOSED:
                    ends.append(StringAttr(word))
                elif word in known:
                    known[word] = TimesAttr.parse_times(parser)
                else:
                    parser.raise_error(f"expected {', '.join((*known, *TRANSPOSED))} or the reason")
                parser.parse_punctuation(",")
            reason = parser.parse_str_literal()
            parser.parse_punctuation(",")
            neuron_order = DepthFirstOrderAttr.parse_arrays(parser)
            predicted, kilobytes, measured = known.values()
            numbers = (IntAttr(first), IntAttr(last), predicted, kilobytes, measured)
            return cls(*numbers, ArrayAttr(ends), StringAttr(reason), neuron_order)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"layers {self.first.data} to {self.last.data}, ")
            for word, numbers in zip(GroupNumbers._fields, self.parameters[2:5], strict=True):
                if isinstance(numbers, TimesAttr) and numbers.by_width:
                    printer.print_string(f"{word} {numbers.text}, ")
            for end in self.ends:
                printer.print_string(f"{end.data}, ")
            printer.print_string_literal(self.reason.data)
            printer.print_string(", ")
            self.neuron_order.print_arrays(printer)


@irdl_attr_definition
class DepthFirstAttr(ParametrizedAttribute):
    """The groups of layers that run depth first in tiles from some width on: `#pebble.depth_first<from 64, [...]>`."""

    name = "pebble.depth_first"

    width: IntAttr
    groups: ArrayAttr[LayerGroupAttr]

    @staticmethod
    def of(width: int, groups: Sequence[LayerGroupAttr]) -> "DepthFirstAttr":
        """Return the attribute for the least width in batch columns, and groups that follow each other."""
        return DepthFirstAttr(IntAttr(width), ArrayAttr(groups))

    def group_of(self, layer: int, width: int) -> LayerGroupAttr | None:
        """Return the group of a layer in tiles of a width; None where it runs by itself."""
        if width < self.width.data:
            return None
        return next((group for group in self.groups if layer in group.layers), None)

    def verify(self) -> None:
        numbers = [layer for group in self.groups for layer in group.layers]
        if not numbers or numbers != sorted(set(numbers)):
            raise VerifyException("groups of layers that do not follow each other")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            parser.parse_keyword("from")
            width = parser.parse_integer()
            parser.parse_punctuation(",")
            groups = parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: LayerGroupAttr.parse_group(parser)
            )
        return (IntAttr(width), ArrayAttr(groups))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"from {self.width.data}, [")
            printer.print_list(self.groups, lambda group: group.print_parameters(printer))
            printer.print_string("]")


def verify_depth_first(body: Block, schedule: DepthFirstAttr) -> None:
    """Check that the groups are layers of a chain, and that each order computes them.

    Raises:
        VerifyException: they are not; names a layer or a neuron.
    """
    layers: list[LinearOp] = chain_of(body)
    if not layers:
        raise VerifyException("only chains of layers run depth first")
    for group in schedule.groups:
        if group.last.data >= len(layers):
            raise VerifyException(f"layers {group.first.data} to {group.last.data} of {len(layers)}")
        last = group.last.data == len(layers) - 1
        if (group.transposed.inputs and group.first.data) or (group.transposed.outputs and not last):
            raise VerifyException("only the first layer reads rows, and only the last one writes them")
        members = layers[group.first.data : group.last.data + 1]
        try:
            network = weighted_graph_of(members)
        except ValueError as error:
            raise VerifyException(f"layers {group.first.data} to {group.last.data}: {error}") from error
        verify_depth_first_order(network.graph, group.neuron_order)
