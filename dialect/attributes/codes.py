"""Codes: the integers of eight bits that stand for the values of a quantized tensor, as the type of its elements."""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Annotated, Final, Self, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.dialects.builtin import NoneAttr, TensorType
from xdsl.ir import Attribute, TypeAttribute
from xdsl.irdl import AnyAttr, AttrConstraint, BaseAttr, ParamAttrConstraint
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ..record import FLOAT, Record
from .activations import ActivationAttr

LEAST_CODE: Final = {"u8": 0, "s8": -128}
"""Kind -> its least code; the greatest one is 255 more."""

DYNAMIC_KIND: Final = "dynamic"
"""Unsigned codes whose scale and zero are those of the range of all values of a tensor, found at each call."""


LEAST_SCALE: Final = float(np.finfo(np.float32).tiny)


def _rounded(scale: float) -> float:
    return float(np.float32(scale))


Scale = Annotated[float, replace(FLOAT, convert=_rounded)]


class CodesAttr(Record, TypeAttribute, text="{kind} scale {scale} zero {zero}"):
    """Codes of a tensor, `tensor<?x4x!pebble.codes<u8 scale 0.05 zero 128>>`; code c stands for scale * (c - zero).

    The scale is a float32. `!pebble.codes<dynamic>` are unsigned codes whose scale and zero are found at each call, by
    the range of all values of the tensor and 0.
    """

    name = "pebble.codes"

    kind: str
    scale: Scale
    """The distance of the values of two neighbouring codes."""
    zero: int
    """The code of 0."""

    @staticmethod
    def dynamic() -> "CodesAttr":
        """Return codes that are found at each call; they stand there with the scale 1 and the zero 0."""
        return CodesAttr(DYNAMIC_KIND, 1.0, 0)

    @property
    def is_dynamic(self) -> bool:
        """Whether scale and zero are found at each call."""
        return self.kind == DYNAMIC_KIND

    @property
    def least(self) -> int:
        """The least code."""
        return LEAST_CODE.get(self.kind, 0)

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
        return ActivationAttr("quantize", (self.scale, self.unsigned_zero))

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
        kind, scale = self.kind, self.scale
        if kind not in (*LEAST_CODE, DYNAMIC_KIND):
            raise VerifyException(f"expected codes {', '.join(LEAST_CODE)} or {DYNAMIC_KIND}, got {kind}")
        if not (isfinite(scale) and scale >= LEAST_SCALE):
            raise VerifyException(f"expected a positive float32 that is no denormal one as scale, got {scale!r}")
        if not self.least <= self.zero <= self.greatest:
            raise VerifyException(f"expected a zero point of {self.least} to {self.greatest}, got {self.zero}")

    @classmethod
    @override
    def parse_inside(cls, parser: AttrParser) -> Self:
        if parser.parse_optional_keyword(DYNAMIC_KIND) is not None:
            return cls(DYNAMIC_KIND, 1.0, 0)
        return super().parse_inside(parser)

    @override
    def print_inside(self, printer: Printer) -> None:
        if self.is_dynamic:
            printer.print_string(DYNAMIC_KIND)
        else:
            super().print_inside(printer)


CodeTensor = TensorType[CodesAttr]
"""The type of a tensor of codes, which is a byte for each value: `tensor<?x64x!pebble.codes<u8 scale 0.5 zero 0>>`."""

CODE_TENSOR: Final = cast(
    "AttrConstraint[CodeTensor]",
    ParamAttrConstraint.get(TensorType, AnyAttr(), BaseAttr(CodesAttr), BaseAttr(NoneAttr)),
)
"""Tensors of codes without an encoding."""


def code_tensor(codes: CodesAttr, shape: Sequence[int]) -> CodeTensor:
    """Return the type of codes of `shape`."""
    return TensorType(codes, shape)


def codes_in(kind: Attribute) -> CodesAttr | None:
    """Return the codes that the elements of a tensor type are; None for any other type."""
    element = cast("TensorType[Attribute]", kind).element_type if isinstance(kind, TensorType) else None
    return element if isinstance(element, CodesAttr) else None
