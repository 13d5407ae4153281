"""Slice and Gather at places that are known: what `chunk`, `x[..., :n]`, `x[:, 0]` become in a file."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from types import MappingProxyType
from typing import Final, NamedTuple

from xdsl.ir import SSAValue

from ...dialect.ops.movement import ConcatOp, SplitOp, TakeOp
from ...dialect.symbolic_sizes import Size, SymbolicShape
from ..folding.known_sizes import is_known, shape_words
from .conversion import Conversion, Converter, NotCovered

INPUTS_SINCE: Final = 10
"""Opset from which the bounds are inputs."""

FAR: Final = (1 << 31) - 1
"""Least end by which exporters mean "up to the last one", however many there are."""


ADDRESSED: Final = 1 << 46
"""Floats of more memory than a process addresses."""

MOST_PLACES: Final = 1024
"""Places of an axis that are picked one by one: each of them is an operand."""


class _Bounds(NamedTuple):
    """A slice along one axis, as the node states it."""

    axis: int
    start: int
    end: int
    step: int = 1


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
        raise NotCovered("expected bounds that follow from known sizes, got bounds computed from values")
    if any(step != 1 for step in steps or ()) and not conversion.scope.all_native:
        raise NotCovered(f"expected steps of 1, got {list(steps or ())}")
    sliced_axes = [conversion.axis(axis, rank) for axis in (range(len(starts)) if axes is None else axes)]
    # ONNX's inference has seen to it that there are as many of each
    return [_Bounds(*entry) for entry in zip(sliced_axes, starts, ends, steps or (1,) * len(starts), strict=False)]


def _cut(conversion: Conversion, x: SSAValue, bounds: _Bounds) -> SSAValue:
    sizes = conversion.sizes(x)
    size = sizes[bounds.axis]
    if bounds.start == 0 and bounds.step == 1 and (bounds.end >= FAR or _is_beyond_memory(sizes, bounds)):
        return x
    if not is_known(size):
        raise NotCovered(f"expected a known size of axis {bounds.axis}, which is cut, got {shape_words(sizes)}")
    extent = int(size.coefficient)
    if bounds.step != 1:
        places = range(*slice(bounds.start, bounds.end, bounds.step).indices(extent))
        if not 0 < len(places) <= MOST_PLACES:
            raise NotCovered(f"expected 1 to {MOST_PLACES} places of axis {bounds.axis}, got {len(places)}")
        return _picked(conversion, x, bounds.axis, places)
    first, behind, _ = slice(bounds.start, bounds.end).indices(extent)
    output = conversion.node.outputs[0]
    is_joined = not output.is_graph_output() and all(use.node.op_type == "Concat" for use in output.uses())
    if behind <= first and extent and is_joined:
        # of a head whose features all turn with the position, say: the concat leaves it out
        return conversion.emit(SplitOp(x, bounds.axis, [extent, 0])).parts[1]
    if behind <= first:
        raise NotCovered(f"expected something to be left of axis {bounds.axis} of {shape_words(sizes)}, got nothing")
    if Size.known(behind - first) == size:
        return x
    parts = [part for part in (first, behind - first, extent - behind) if part]
    return conversion.emit(SplitOp(x, bounds.axis, parts)).parts[1 if first else 0]


def _is_beyond_memory(sizes: SymbolicShape, bounds: _Bounds) -> bool:
    """Return whether no memory holds a tensor that reaches the end, such as the billion that tf2onnx writes for all."""
    others = [size.constant for axis, size in enumerate(sizes) if axis != bounds.axis]
    return bounds.end * prod(max(1, size or 1) for size in others) >= ADDRESSED


def _convert_gather(conversion: Conversion) -> Sequence[SSAValue]:
    """Return what stands at one known index of an axis, the first token of each text, say; natively at several."""
    x, index = conversion.tensor(0), conversion.any_constant(1)
    sizes = conversion.sizes(x)
    single = conversion.integers(1) if index is None else index.reshape(-1).tolist()
    value = conversion.node.inputs[1]
    rank = None if value is None or value.shape is None else value.shape.rank()
    several = conversion.scope.all_native and rank == 1 and 0 < len(single or ()) <= MOST_PLACES
    if single is None or not (several or (rank == 0 and len(single) == 1)):
        raise NotCovered("expected one constant index, got computed ones, or several")
    axis = conversion.axis(conversion.integer("axis", 0), len(sizes))
    if not is_known(sizes[axis]):
        if several:
            raise NotCovered(f"expected a known size of axis {axis}, which is indexed, got {shape_words(sizes)}")
        return [conversion.emit(TakeOp(x, axis, single[0])).result]
    extent = int(sizes[axis].coefficient)
    places = _places(single, extent, f"axis {axis} of {shape_words(sizes)}")
    if several:
        return [_picked(conversion, x, axis, places)]
    part = _cut(conversion, x, _Bounds(axis, places[0], places[0] + 1))
    return [conversion.reshape(part, (*sizes[:axis], *sizes[axis + 1 :]))]


def _convert_gather_nd(conversion: Conversion) -> Sequence[SSAValue]:
    """Return what stands at known places of the first axis."""
    x, index = conversion.tensor(0), conversion.any_constant(1)
    sizes = conversion.sizes(x)
    of_axis = index is not None and index.ndim == 2 and index.shape[1] == 1 and 0 < index.size <= MOST_PLACES
    if index is None or not of_axis or not conversion.scope.all_native or conversion.integer("batch_dims", 0):
        raise NotCovered("expected constant places of the first axis, got computed ones, or of several axes")
    if not is_known(sizes[0]):
        raise NotCovered(f"expected a known size of axis 0, which is indexed, got {shape_words(sizes)}")
    extent = int(sizes[0].coefficient)
    return [_picked(conversion, x, 0, _places(index.reshape(-1).tolist(), extent, f"axis 0 of {shape_words(sizes)}"))]


def _places(indices: Sequence[int], extent: int, axis: str) -> list[int]:
    """Return indices counted from the front.

    Raises:
        NotCovered: one is not there.
    """
    wrong = [index for index in indices if not -extent <= index < extent]
    if wrong:
        raise NotCovered(f"expected an index of {axis} places, got {wrong[0]}")
    return [index % extent for index in indices]


def _picked(conversion: Conversion, x: SSAValue, axis: int, places: Sequence[int]) -> SSAValue:
    """Return what stands at places of an axis, one after the other."""
    extent = int(conversion.sizes(x)[axis].coefficient)
    if list(places) == list(range(extent)):
        return x
    borders = sorted({0, extent, *places, *(place + 1 for place in places)})
    lengths = [behind - first for first, behind in pairwise(borders)]
    parts = conversion.emit(SplitOp(x, axis, lengths)).parts if len(lengths) > 1 else (x,)
    at = dict(zip(borders, parts, strict=False))
    picked = [at[place] for place in places]
    return conversion.emit(ConcatOp(picked, axis)).result if len(picked) > 1 else picked[0]


SLICING_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {("", "Gather"): _convert_gather, ("", "GatherND"): _convert_gather_nd, ("", "Slice"): _convert_slice}
)
"""(domain, operator) -> converter."""
