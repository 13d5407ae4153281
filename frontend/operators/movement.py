"""Nodes that move values or pass them on: Reshape and its kin, Transpose, Concat, Split, Identity, Dropout, Cast."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx_ir
from xdsl.ir import SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.elementwise import ActivateOp
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.symbolic_sizes import ONE, Size, SymbolicShape, product
from ..folding.half_precision import is_rounding
from ..folding.known_sizes import broadcast_sizes, is_known, shape_words
from ..folding.shape_arithmetic import ShapeValue
from .conversion import Conversion, Converter, NotCovered
from .onnx_types import element_name

MOST_COPIES: Final = 256
"""Copies of values along an axis: each of them is an operand."""

NOTHING: Final = (Size.known(0),)


def _convert_reshape(conversion: Conversion) -> Sequence[SSAValue]:
    x = conversion.tensor(0)
    target = conversion.shape_value(1)
    if target is not None and not target.scalar:
        sizes = reshaped(conversion, conversion.sizes(x), target)
        conversion.scope.check_volumes(conversion.node, conversion.sizes(x), sizes)
        return [conversion.reshape(x, conversion.scope.with_numbers(conversion.node.outputs[0], sizes))]
    output = conversion.node.outputs[0]
    declared = conversion.scope.declared_sizes(output)
    if declared is None:
        raise NotCovered("expected a shape that follows from the shapes of inputs, got one computed from values")
    return [conversion.reshape(x, declared)]


def reshaped(conversion: Conversion, source: SymbolicShape, target: ShapeValue) -> SymbolicShape:
    """Return the sizes that ONNX's target means: 0 copies (unless allowzero), -1 is what is left over.

    Raises:
        NotCovered: the target does not fit the sizes, or leaves several open.
    """
    copies = conversion.integer("allowzero", 0) == 0
    sizes: list[Size] = []
    for axis, size in enumerate(target.sizes):
        if size.coefficient == 0 and copies:
            if axis >= len(source):
                raise NotCovered(f"expected a copy of one of the axes of {shape_words(source)}, got axis {axis}")
            sizes.append(source[axis])
        elif size.coefficient < -1 or (size.coefficient < 0 and not is_known(size)):
            raise NotCovered(f"expected sizes of -1 or more in the shape, got {size}")
        else:
            sizes.append(size)
    if sizes.count(Size.known(-1)) > 1:
        raise NotCovered("expected a shape that leaves one size open, got several")
    if Size.known(-1) not in sizes:
        return tuple(sizes)
    unknown = sizes.index(Size.known(-1))
    rest = product([size for index, size in enumerate(sizes) if index != unknown])
    sizes[unknown] = _left_over(product(source), rest)
    return tuple(sizes)


def _left_over(whole: Size, rest: Size) -> Size:
    """Return the size that stands for -1 when `rest` is the product of the others and `whole` of the input's."""
    size = whole / rest if rest.coefficient else None
    if size is None or (is_known(size) and size.coefficient.denominator != 1):
        raise NotCovered(f"expected a divisor of {whole} values in the shape, got {rest} times anything")
    return size


def _convert_flatten(conversion: Conversion) -> Sequence[SSAValue]:
    x = conversion.tensor(0)
    sizes = conversion.sizes(x)
    axis = conversion.integer("axis", 1)
    if not -len(sizes) <= axis <= len(sizes):
        raise NotCovered(f"expected axis={-len(sizes)} to {len(sizes)}, got {axis}")
    axis = axis + len(sizes) if axis < 0 else axis
    return [conversion.reshape(x, (product(sizes[:axis]), product(sizes[axis:])))]


def axes_of(conversion: Conversion, since: int) -> tuple[int, ...] | None:
    """Return the axes: an attribute before opset `since`, input 1 since; None where they are left out.

    Raises:
        NotCovered: they are no constant.
    """
    if conversion.opset < since:
        return conversion.integer_list("axes")
    if not conversion.has_input(1):
        return None
    axes = conversion.integers(1)
    if axes is None:
        raise NotCovered("expected constant axes, got axes computed from values")
    return axes


def _convert_squeeze(conversion: Conversion) -> Sequence[SSAValue]:
    x = conversion.tensor(0)
    sizes = conversion.sizes(x)
    axes = axes_of(conversion, 13)
    if axes is None:
        if not all(is_known(size) for size in sizes):
            raise NotCovered(f"expected axes, or known sizes, got no axes for an input {shape_words(sizes)}")
        return [conversion.reshape(x, tuple(size for size in sizes if size != ONE))]
    dropped = {conversion.axis(axis, len(sizes)) for axis in axes}
    for axis in sorted(dropped):
        if sizes[axis] != ONE:
            raise NotCovered(f"expected size 1 of axis {axis} to squeeze, got {sizes[axis]}")
    return [conversion.reshape(x, tuple(size for axis, size in enumerate(sizes) if axis not in dropped))]


def _convert_unsqueeze(conversion: Conversion) -> Sequence[SSAValue]:
    x = conversion.tensor(0)
    axes = axes_of(conversion, 13)
    if axes is None:
        raise NotCovered("expected constant axes, got none")
    sizes = list(conversion.sizes(x))
    rank = len(sizes) + len(axes)
    for axis in sorted({conversion.axis(axis, rank) for axis in axes}):
        sizes.insert(axis, ONE)
    return [conversion.reshape(x, tuple(sizes))]


def _convert_transpose(conversion: Conversion) -> Sequence[SSAValue]:
    x = conversion.tensor(0)
    rank = len(conversion.sizes(x))
    axes = conversion.integer_list("perm")
    axes = tuple(reversed(range(rank))) if axes is None else tuple(conversion.axis(axis, rank) for axis in axes)
    if sorted(axes) != list(range(rank)):
        raise NotCovered(f"expected perm as a permutation of 0 to {rank - 1}, got {list(axes)}")
    return [conversion.transpose(x, axes)]


def _convert_concat(conversion: Conversion) -> Sequence[SSAValue]:
    parts = [conversion.tensor(index) for index in range(len(conversion.node.inputs))]
    axis = conversion.axis(conversion.integer("axis", 0), len(conversion.sizes(parts[0])))
    for part in () if conversion.scope.all_native else parts:
        sizes = conversion.sizes(part)
        if axis < len(sizes) and not is_known(sizes[axis]):
            raise NotCovered(f"expected a known size along axis {axis}, got an input {shape_words(sizes)}")
    left = [part for part in parts if conversion.sizes(part)[axis : axis + 1] != NOTHING] or parts[:1]
    return [conversion.emit(ConcatOp(left, axis)).result if len(left) > 1 else left[0]]


def _convert_expand(conversion: Conversion) -> Sequence[SSAValue]:
    """Return copies one after the other, along axes of one entry: what a runtime has a node of its own for."""
    if not conversion.scope.all_native:
        raise NotCovered("it only copies, and no layer of its own gains by it")
    x, target = conversion.tensor(0), conversion.shape_value(1)
    if target is None or target.scalar:
        raise NotCovered("expected a shape that follows from the shapes of inputs, got one computed from values")
    sizes = conversion.sizes(x)
    result = broadcast_sizes(sizes, target.sizes)
    if result is None:
        raise NotCovered(f"expected a shape that {shape_words(sizes)} fits, got {shape_words(target.sizes)}")
    x = conversion.reshape(x, (ONE,) * (len(result) - len(sizes)) + sizes)
    for axis, size in enumerate(result):
        if size == conversion.sizes(x)[axis]:
            continue
        if not is_known(size) or not 0 < size.coefficient <= MOST_COPIES:
            raise NotCovered(f"expected 1 to {MOST_COPIES} copies along axis {axis}, got {size}")
        x = conversion.emit(ConcatOp([x] * int(size.coefficient), axis)).result
    return [x]


def _convert_split(conversion: Conversion) -> Sequence[SSAValue]:
    x = conversion.tensor(0)
    sizes = conversion.sizes(x)
    axis = conversion.axis(conversion.integer("axis", 0), len(sizes))
    if not is_known(sizes[axis]):
        raise NotCovered(f"expected a known size of axis {axis} of the input, got {sizes[axis]}")
    return conversion.emit(SplitOp(x, axis, _split_sizes(conversion, int(sizes[axis].coefficient)))).parts


def _split_sizes(conversion: Conversion, whole: int) -> Sequence[int]:
    """Return the sizes of the parts: an attribute before opset 13, an input since, else as equal as can be."""
    given = conversion.integer_list("split") if conversion.opset < 13 else conversion.integers(1)
    if given is None and conversion.opset >= 13 and conversion.has_input(1):
        raise NotCovered("expected constant sizes, got sizes computed from values")
    if given is not None:
        return given
    count = conversion.integer("num_outputs", len(conversion.node.outputs))
    size = -(-whole // count)
    return [min(size, whole - index * size) for index in range(count)]


def _convert_identity(conversion: Conversion) -> Sequence[SSAValue]:
    return [conversion.tensor(0)]


def _convert_dropout(conversion: Conversion) -> Sequence[SSAValue]:
    """Inference only; the mask is not covered."""
    training = conversion.any_constant(2)
    if conversion.has_input(2) and (training is None or bool(np.any(training))):
        raise NotCovered("expected inference, got input training_mode that is not constantly false")
    refuse_further_outputs(conversion)
    return [conversion.tensor(0)]


def refuse_further_outputs(conversion: Conversion) -> None:
    """Check that no output but the first one of a node is used.

    Raises:
        NotCovered: another output is used.
    """
    for index, output in enumerate(conversion.node.outputs[1:], start=1):
        if output.uses() or output.is_graph_output():
            raise NotCovered(f"expected only output 0 to be used, got output {index} ({output.name})")


def _convert_cast(conversion: Conversion) -> Sequence[SSAValue]:
    target = onnx_ir.DataType(conversion.integer("to", 0))
    x = conversion.tensor(0)
    if is_rounding(conversion.node):
        return [conversion.emit(ActivateOp(x, ActivationAttr("bfloat16"))).result]
    if target != onnx_ir.DataType.FLOAT:
        raise NotCovered(f"expected to=float, got {element_name(target)}")
    return [x]


MOVEMENT_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {
        ("", "Cast"): _convert_cast,
        ("", "Concat"): _convert_concat,
        ("", "Dropout"): _convert_dropout,
        ("", "Expand"): _convert_expand,
        ("", "Flatten"): _convert_flatten,
        ("", "Identity"): _convert_identity,
        ("", "Reshape"): _convert_reshape,
        ("", "Split"): _convert_split,
        ("", "Squeeze"): _convert_squeeze,
        ("", "Transpose"): _convert_transpose,
        ("", "Unsqueeze"): _convert_unsqueeze,
    }
)
"""(domain, operator) -> converter."""
