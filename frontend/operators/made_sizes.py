"""Sizes that nodes of any type make of integers: what ONNX's inference gives a name to that says nothing."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from ...dialect.symbolic_sizes import ONE, Size, SymbolicShape, broadcast
from ..folding.shape_arithmetic import ShapeValue
from .conversion import Conversion, NotCovered
from .movement import reshaped


def made_sizes(conversion: Conversion) -> SymbolicShape | None:
    """Return the sizes of what one of `RULES` yields; None where they are not known, and for other nodes."""
    rule = RULES.get(conversion.node.op_type) if conversion.node.domain == "" else None
    return None if rule is None else rule(conversion)


def _expanded(conversion: Conversion) -> SymbolicShape | None:
    source, target = _source(conversion), _target(conversion)
    return None if source is None or target is None else broadcast(source, target.sizes)


def _reshaped(conversion: Conversion) -> SymbolicShape | None:
    source, target = _source(conversion), _target(conversion)
    if source is None or target is None:
        return None
    try:
        return reshaped(conversion, source, target)
    except NotCovered:
        return None


def _range(conversion: Conversion) -> SymbolicShape | None:
    """Return the limit where a range counts from 0 by 1."""
    start, limit, step = (conversion.shape_value(index) for index in range(3))
    if start is None or limit is None or step is None or step.sizes != (ONE,) or start.sizes != (Size.known(0),):
        return None
    return limit.sizes if len(limit.sizes) == 1 and limit.sizes[0].coefficient >= 0 else None


def _filled(conversion: Conversion) -> SymbolicShape | None:
    shape = conversion.shape_value(0)
    return None if shape is None or shape.scalar else shape.sizes


def _source(conversion: Conversion) -> SymbolicShape | None:
    x = conversion.input(0)
    return None if x is None else conversion.scope.sizes_of_onnx_value(x)


def _target(conversion: Conversion) -> ShapeValue | None:
    target = conversion.shape_value(1)
    return None if target is None or target.scalar else target


RULES: Final = MappingProxyType[str, Callable[[Conversion], SymbolicShape | None]](
    {"ConstantOfShape": _filled, "Expand": _expanded, "Range": _range, "Reshape": _reshaped}
)
