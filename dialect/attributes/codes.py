"""Codes: the integers of eight bits that stand for the values of a quantized tensor."""

from collections.abc import Sequence
from math import isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import FloatAttr, IntAttr, StringAttr, f64
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from .activations import ActivationAttr

LEAST_CODE: Final = {"u8": 0, "s8": -128}
"""Kind -> its least code; the greatest one is 255 more."""

DYNAMIC_KIND: Final = "dynamic"
"""Unsigned codes whose scale and zero are those of the range of all values of a tensor, found at each call."""


LEAST_SCALE: Final = float(np.finfo(np.float32).tiny)


@irdl_attr_definition
class CodesAttr(ParametrizedAttribute):
    """Codes of a tensor: `#pebble.codes<u8 scale 0.05 zero 128>`; code c stands for scale * (c - zero).

    The scale is a float32. `#pebble.codes<dynamic>` are unsigned codes whose scale and zero are found at each call, by
    the range of all values of the tensor and 0.
    """

    name = "pebble.codes"

    kind: StringAttr
    scale_value: FloatAttr
    zero_code: IntAttr

    @staticmethod
    def of(kind: str, scale: float, zero: int) -> "CodesAttr":
        """Return codes `u8` or `s8`."""
        return CodesAttr(StringAttr(kind), FloatAttr(float(np.float32(scale)), f64), IntAttr(zero))

    @staticmethod
    def dynamic() -> "CodesAttr":
        """Return codes that are found at each call; they stand there with the scale 1 and the zero 0."""
        return CodesAttr.of(DYNAMIC_KIND, 1.0, 0)

    @property
    def is_dynamic(self) -> bool:
        """Whether scale and zero are found at each call."""
        return self.kind.data == DYNAMIC_KIND

    @property
    def scale(self) -> float:
        """The distance of the values of two neighbouring codes."""
        return self.scale_value.value.data

    @property
    def zero(self) -> int:
        """The code of 0."""
        return self.zero_code.data

    @property
    def least(self) -> int:
        """The least code."""
        return LEAST_CODE.get(self.kind.data, 0)

    @property
    def greatest(self) -> int:
        """The greatest code."""
        return self.least + 255

    @property
    def unsigned_zero(self) -> int:
        """The code of 0 where the least code counts as 0."""
        return self.zero - self.least

    @property
    def rounding(self) -> ActivationAttr:
        """The activation that rounds values to the codes."""
        return ActivationAttr.of("quantize", self.scale, self.unsigned_zero)

    def steps(self, multiples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return code - zero for values that are given as multiples of the scale: the nearest, even where two are."""
        low, high = np.float32(self.least - self.zero), np.float32(self.greatest - self.zero)
        # a NaN has the least code, as in onnxruntime
        return np.rint(np.minimum(np.where(multiples > low, multiples, low), high))

    @staticmethod
    def of_range(x: NDArray[np.floating]) -> tuple[np.float32, np.float32]:
        """Return scale and zero of the dynamic codes of a tensor, as onnxruntime finds them."""
        low, high = (np.float32(end(np.append(x, 0))) for end in (np.nanmin, np.nanmax))
        with np.errstate(invalid="ignore"):
            scale = np.float32(1) if low == high else (high - low) / np.float32(255)
            return scale, np.rint(np.fmin(np.fmax(-low / scale, 0), 255))

    def verify(self) -> None:
        kind, scale = self.kind.data, self.scale
        if kind not in (*LEAST_CODE, DYNAMIC_KIND):
            raise VerifyException(f"codes {kind}, accepted are {', '.join(LEAST_CODE)} and {DYNAMIC_KIND}")
        if not (isfinite(scale) and scale >= LEAST_SCALE) or scale != float(np.float32(scale)):
            raise VerifyException(f"scale {scale!r}, expected a positive float32 that is no denormal one")
        if not self.least <= self.zero <= self.greatest:
            raise VerifyException(f"zero {self.zero}, expected {self.least} to {self.greatest}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            kind = parser.parse_identifier()
            if kind == DYNAMIC_KIND:
                return CodesAttr.dynamic().parameters
            parser.parse_keyword("scale")
            scale = float(parser.parse_number(allow_boolean=False))
            parser.parse_keyword("zero")
            return (StringAttr(kind), FloatAttr(scale, f64), IntAttr(parser.parse_integer()))

    def print_parameters(self, printer: Printer) -> None:
        if self.is_dynamic:
            with printer.in_angle_brackets():
                printer.print_string(DYNAMIC_KIND)
            return
        mantissa, exponent, power = repr(self.scale).partition("e")
        scale = f"{mantissa}.0e{power}" if exponent and "." not in mantissa else repr(self.scale)
        with printer.in_angle_brackets():
            printer.print_string(f"{self.kind.data} scale {scale} zero {self.zero}")
