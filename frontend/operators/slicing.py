"""Slice and Gather at places that are known: what `chunk`, `x[..., :n]`, `x[:, 0]` become in a file."""

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


def _convert_gather(conversion: Conversion) -> Sequence[SSAValue]:
    """Return what stands at one known index of an axis: the first token of each text, say."""
    x, index = conversion.tensor(0), conversion.integers(1)
    sizes = conversion.sizes(x)
    value = conversion.node.inputs[1]
    is_number = value is not None and value.shape is not None and value.shape.rank() == 0
    if index is None or len(index) != 1 or not is_number:
        raise NotCovered("the indices are computed or several, accepted is one that is known")
    axis = conversion.axis(conversion.integer("axis", 0), len(sizes))
    if not is_known(sizes[axis]):
        raise NotCovered(f"axis {axis} of {shape_words(sizes)} is indexed, accepted is a known size there")
    extent, place = int(sizes[axis].coefficient), index[0]
    if not -extent <= place < extent:
        raise NotCovered(f"index {place} of axis {axis} of {shape_words(sizes)}, accepted is one that is there")
    first = place % extent
    part = _cut(conversion, x, _Bounds(axis, first, first + 1))
    return [conversion.reshape(part, (*sizes[:axis], *sizes[axis + 1 :]))]


SLICING_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {("", "Gather"): _convert_gather, ("", "Slice"): _convert_slice}
)
"""(domain, operator) -> converter."""
