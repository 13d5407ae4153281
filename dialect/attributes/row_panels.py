"""The attribute that says which outputs of a sparse weight are computed together, because they read the same inputs."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.parser import AttrParser
from xdsl.utils.exceptions import VerifyException

from ..record import Record, written
from ..tensors import IndexArray


class PanelCount(NamedTuple):
    """Panels of some height: `8 by 2`."""

    height: int
    number: int


def _parse_size(parser: AttrParser) -> PanelCount:
    height = parser.parse_integer(allow_negative=False)
    parser.parse_keyword("by")
    return PanelCount(height, parser.parse_integer(allow_negative=False))


Size = Annotated[PanelCount, written(_parse_size, lambda size: f"{size[0]} by {size[1]}")]
Share = Annotated[
    float, written(AttrParser.parse_float, "{:.2f}".format, convert=lambda share: round(100 * share) / 100)
]


class PanelsAttr(Record, text="{sizes}, {shared} shared, {outputs}"):
    """Panels of outputs that share inputs, the tallest first; outputs that are not listed stand alone.

    ```mlir
    #pebble.panels<[8 by 2, 4 by 1], 0.93 shared, dense<...> : tensor<20xi64>>
    ```

    Two panels of eight outputs and one of four, listed one panel after the other; 93 % of the weight's connections go
    to inputs that a whole panel reads.
    """

    name = "pebble.panels"

    sizes: Sequence[Size]
    shared: Share
    """The share of connections that go to inputs that a whole panel reads."""
    outputs: IndexArray

    @staticmethod
    def of(panels: Sequence[Sequence[int]], shared: float) -> "PanelsAttr":
        """Return the attribute for panels that are ordered by falling height."""
        heights = sorted({len(panel) for panel in panels}, reverse=True)
        sizes = [PanelCount(height, sum(1 for panel in panels if len(panel) == height)) for height in heights]
        return PanelsAttr(sizes, shared, np.array([output for panel in panels for output in panel], dtype=np.int64))

    @property
    def panels(self) -> list[tuple[int, NDArray[np.int64]]]:
        """The panels by height: height and outputs [panels, height]."""
        arrays: list[tuple[int, NDArray[np.int64]]] = []
        start = 0
        for height, count in self.sizes:
            arrays.append((height, self.outputs[start : start + height * count].reshape(count, height)))
            start += height * count
        return arrays

    @property
    def sentence(self) -> str:
        """The panels in words."""
        sizes = ", ".join(f"{count} of {height} outputs" for height, count in self.sizes)
        return f"panels, {sizes}, with {round(100 * self.shared)} % of the connections"

    def verify(self) -> None:
        heights = [size.height for size in self.sizes]
        if heights != sorted(set(heights), reverse=True) or any(height < 1 for height in heights):
            raise VerifyException(f"expected falling heights from 1 on, got {heights}")
        outputs = self.outputs
        wanted = sum(height * count for height, count in self.sizes)
        if len(outputs) != wanted:
            raise VerifyException(f"{len(outputs)} outputs in panels of {wanted}")
        if len(np.unique(outputs)) != len(outputs) or np.any(outputs < 0):
            raise VerifyException("an output is in two panels, or negative")
        if not 0 <= self.shared <= 1:
            raise VerifyException(f"expected 0 to 100 % shared, got {round(100 * self.shared)}")
