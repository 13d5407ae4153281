"""The attribute that says where the rows, or the columns, of a resampled image come from."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import I64, DenseArrayBase, Float64Type, f64, i64
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

OUTSIDE: Final = -1
"""An index of a row or a column that the image does not have: the fill value stands there."""


class ResamplingTap(NamedTuple):
    """Rows of an image, one for each of a result, and the share that each has in it."""

    indices: NDArray[np.int64]
    shares: NDArray[np.float32]


@irdl_attr_definition
class ResamplingAttr(ParametrizedAttribute):
    """Rows (or columns) of a result: each is one of the image, or a mean of two by the share of the second one.

    ```mlir
    #pebble.resampling<[0, 0, 1, 1]>
    #pebble.resampling<[0, 0, 1] to [1, 1, 1] shares [0.0, 0.5, 0.0]>
    ```

    -1 is no row of the image.
    """

    name = "pebble.resampling"

    indices: DenseArrayBase[I64]
    others: DenseArrayBase[I64]
    shares: DenseArrayBase[Float64Type]

    @staticmethod
    def of(indices: Sequence[int], others: Sequence[int] = (), shares: Sequence[float] = ()) -> "ResamplingAttr":
        """Return the resampling to these rows, or between them and others."""
        return ResamplingAttr(
            DenseArrayBase.from_list(i64, list(indices)),
            DenseArrayBase.from_list(i64, list(others)),
            DenseArrayBase.from_list(f64, list(shares)),
        )

    @property
    def size(self) -> int:
        """Rows of the result."""
        return len(self.indices)

    @property
    def taps(self) -> tuple[ResamplingTap, ...]:
        """The rows of which a row of the result has a share: one or two."""
        first = np.array(self.indices.get_values(), np.int64)
        if not len(self.others):
            return (ResamplingTap(first, np.ones(len(first), np.float32)),)
        share = np.array(self.shares.get_values(), np.float32)
        other = np.array(self.others.get_values(), np.int64)
        return (ResamplingTap(first, np.float32(1) - share), ResamplingTap(other, share))

    def verify(self) -> None:
        others, shares = len(self.others), len(self.shares)
        if others != shares or others not in (0, self.size):
            raise VerifyException(f"{others} other rows and {shares} shares for {self.size}, expected none or as many")
        indices = [*self.indices.get_values(), *self.others.get_values()]
        least = 0 if others else OUTSIDE
        if min(indices, default=0) < least:
            raise VerifyException(f"row {min(indices)}, expected {least} or more")

    def fits(self, size: int) -> bool:
        """Return whether an image of so many rows has all that are asked for."""
        return max([*self.indices.get_values(), *self.others.get_values()], default=OUTSIDE) < size

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            indices = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            others: list[int] = []
            shares: list[float] = []
            if parser.parse_optional_keyword("to"):
                others = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
                parser.parse_keyword("shares")
                shares = parser.parse_comma_separated_list(
                    parser.Delimiter.SQUARE, lambda: float(parser.parse_number())
                )
        return ResamplingAttr.of(indices, others, shares).parameters

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(list(self.indices.get_values())))
            if len(self.others):
                others, shares = list(self.others.get_values()), list(self.shares.get_values())
                printer.print_string(f" to {others} shares {shares}")
