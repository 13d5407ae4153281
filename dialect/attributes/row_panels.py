"""The attribute that says which outputs of a sparse weight are computed together, because they read the same inputs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DenseIntOrFPElementsAttr, IntAttr, IntegerType
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from ..tensors import dense_indices, indices_of


@irdl_attr_definition
class PanelsAttr(ParametrizedAttribute):
    """Panels of outputs that share inputs, the tallest first; outputs that are not listed stand alone.

    ```mlir
    #pebble.panels<[8 by 2, 4 by 1], 0.93 shared, dense<...> : tensor<20xi64>>
    ```

    Two panels of eight outputs and one of four, listed one panel after the other; 93 % of the weight's connections go
    to inputs that a whole panel reads.
    """

    name = "pebble.panels"

    heights: ArrayAttr[IntAttr]
    counts: ArrayAttr[IntAttr]
    percent: IntAttr
    outputs: DenseIntOrFPElementsAttr[IntegerType]

    @staticmethod
    def of(panels: Sequence[Sequence[int]], shared: float) -> "PanelsAttr":
        """Return the attribute for panels that are ordered by falling height."""
        heights = sorted({len(panel) for panel in panels}, reverse=True)
        counts = [sum(1 for panel in panels if len(panel) == height) for height in heights]
        outputs = np.array([output for panel in panels for output in panel], dtype=np.int64)
        return PanelsAttr(
            ArrayAttr([IntAttr(height) for height in heights]),
            ArrayAttr([IntAttr(count) for count in counts]),
            IntAttr(round(100 * shared)),
            dense_indices(outputs),
        )

    @property
    def panels(self) -> list[tuple[int, NDArray[np.int64]]]:
        """The panels by height: height and outputs [panels, height]."""
        arrays: list[tuple[int, NDArray[np.int64]]] = []
        outputs, start = indices_of(self.outputs), 0
        for height, count in self._sizes():
            arrays.append((height, outputs[start : start + height * count].reshape(count, height)))
            start += height * count
        return arrays

    @property
    def shared(self) -> float:
        """The share of connections that go to inputs that a whole panel reads."""
        return self.percent.data / 100

    @property
    def sentence(self) -> str:
        """The panels in words."""
        sizes = ", ".join(f"{count} of {height} outputs" for height, count in self._sizes())
        return f"panels, {sizes}, with {self.percent.data} % of the connections"

    def _sizes(self) -> list[tuple[int, int]]:
        return [(height.data, count.data) for height, count in zip(self.heights, self.counts, strict=True)]

    def verify(self) -> None:
        heights = [height.data for height in self.heights]
        if heights != sorted(set(heights), reverse=True) or any(height < 1 for height in heights):
            raise VerifyException(f"heights {heights}, expected falling numbers from 1 on")
        outputs = indices_of(self.outputs)
        wanted = sum(height * count for height, count in self._sizes())
        if len(outputs) != wanted:
            raise VerifyException(f"{len(outputs)} outputs in panels of {wanted}")
        if len(np.unique(outputs)) != len(outputs) or np.any(outputs < 0):
            raise VerifyException("an output is in two panels, or negative")
        if not 0 <= self.percent.data <= 100:
            raise VerifyException(f"{self.percent.data} % shared, expected 0 to 100")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            sizes = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_size(parser))
            parser.parse_punctuation(",")
            shared = parser.parse_float()
            parser.parse_keyword("shared")
            parser.parse_punctuation(",")
            outputs = parser.parse_attribute()
        if not isa(outputs, DenseIntOrFPElementsAttr[IntegerType]):
            parser.raise_error("expected the outputs as dense integers")
        heights, counts = ([IntAttr(size[axis]) for size in sizes] for axis in range(2))
        return (ArrayAttr(heights), ArrayAttr(counts), IntAttr(round(100 * shared)), outputs)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            sizes = ", ".join(f"{height} by {count}" for height, count in self._sizes())
            printer.print_string(f"[{sizes}], {self.shared:.2f} shared, ")
            printer.print_attribute(self.outputs)


def _parse_size(parser: AttrParser) -> tuple[int, int]:
    height = parser.parse_integer(allow_negative=False)
    parser.parse_keyword("by")
    return height, parser.parse_integer(allow_negative=False)
