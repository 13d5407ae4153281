"""Slice with bounds that are known: what `chunk`, `x[..., :n]` and split projections become in a file."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from xdsl.ir import SSAValue

from redpebble.dialect.ops.movement import SplitOp
from redpebble.dialect.symbolic_sizes import Size
from redpebble.frontend.folding.known_sizes import is_known, shape_words
from redpebble.frontend.operators.conversion import Conversion, Converter, NotCovered

INPUTS_SINCE: Final = 10
"""Opset from which the bounds are inputs."""

FAR: Final = (1 << 31) - 1
"""Least end by which exporters mean "up to the last one", however many there are."""


class _Bounds(NamedTuple):
    """A slice along one axis, as the node states it."""

    axis: int
    start: int
    end: int


def _convert_slice(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the middle part of a split along each axis that is cut."""
    x = conversion.tensor(0)
    for bounds in _bounds(conversion, len(conversion.sizes(x))):
        x = _cut(conversion, x, bounds)
    return [x]


def _bounds(conversion: Conversion, rank: int) -> list[_Bounds]:
    if conversion.opset < INPUTS_SINCE:
        starts, ends = conversion.integer_list("starts"), conversion.integer_list("ends")
        axes, steps = conversion.integer_list("axes"), None
    else:
        starts, ends, axes, steps = (conversion.integers(index) for index in range(1, 5))
    unknown = any(conversion.has_input(index) for index, given in ((3, axes), (4, steps)) if given is None)
    if starts is None or ends is None or unknown:
        raise NotCovered("the bounds are computed from values, accepted are bounds that follow from known sizes")
    if any(step != 1 for step in steps or ()):
        raise NotCovered(f"steps {list(steps or ())}, accepted is 1")
    sliced_axes = [conversion.axis(axis, rank) for axis in (range(len(starts)) if axes is None else axes)]
    # ONNX's inference has seen to it that there are as many of each
    return [_Bounds(*entry) for entry in zip(sliced_axes, starts, ends, strict=False)]


def _cut(conversion: Conversion, x: SSAValue, bounds: _Bounds) -> SSAValue:
    sizes = conversion.sizes(x)
    size = sizes[bounds.axis]
    if bounds.start == 0 and bounds.end >= FAR:
        return x
    if not is_known(size):
        raise NotCovered(f"axis {bounds.axis} of {shape_words(sizes)} is cut, accepted is a known size there")
    extent = int(size.coefficient)
    first, behind, _ = slice(bounds.start, bounds.end).indices(extent)
    if behind <= first:
        raise NotCovered(f"nothing is left of axis {bounds.axis} of {shape_words(sizes)}, accepted is something")
    if Size.known(behind - first) == size:
        return x
    parts = [part for part in (first, behind - first, extent - behind) if part]
    return conversion.emit(SplitOp(x, bounds.axis, parts)).parts[1 if first else 0]


SLICING_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter]({("", "Slice"): _convert_slice})
"""(domain, operator) -> converter."""
