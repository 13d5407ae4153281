"""Nodes that normalise or reduce along axes: softmax, batch, layer and RMS normalisation, mean."""

from collections.abc import Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np
from xdsl.ir import SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.window import WindowAttr
from ...dialect.ops.elementwise import ActivateOp, AddOp, MulOp
from ...dialect.ops.images import Pool2dOp
from ...dialect.ops.layers import BatchNormOp, LayerNormOp, LogSoftmaxOp, ReduceMeanOp, RmsNormOp, SoftmaxOp
from ...dialect.ops.training.gradients import SumRowsOp
from ...dialect.symbolic_sizes import ONE, Size, SymbolicShape, broadcast, product
from ...dialect.tensors import shape_of
from ..folding.known_sizes import is_known, shape_words
from .conversion import Conversion, Converter, NotCovered
from .movement import axes_of, refuse_further_outputs

NONE: Final = Size.known(0)


def _known_tail(sizes: SymbolicShape, axis: int) -> int:
    """Return the number of values from `axis` on.

    Raises:
        NotCovered: it is not known or zero.
    """
    tail = product(sizes[axis:])
    if not is_known(tail) or tail.coefficient == 0:
        raise NotCovered(f"expected known sizes from axis {axis} on, got an input {shape_words(sizes)}")
    return int(tail.coefficient)


def _with_joined_tail(conversion: Conversion, x: SSAValue, axis: int) -> SSAValue:
    """Return `x` with the axes from `axis` on as one."""
    sizes = conversion.sizes(x)
    _known_tail(sizes, axis)
    return x if axis == len(sizes) - 1 else conversion.reshape(x, (*sizes[:axis], product(sizes[axis:])))


def _with_shape(conversion: Conversion, x: SSAValue, sizes: SymbolicShape) -> SSAValue:
    return x if conversion.sizes(x) == sizes else conversion.reshape(x, sizes)


def _convert_softmax(op_class: type[SoftmaxOp | LogSoftmaxOp], conversion: Conversion) -> Sequence[SSAValue]:
    """Before opset 13 the axes from `axis` on (default 1) are one, since then it is the axis alone (default -1)."""
    x = conversion.tensor(0)
    sizes = conversion.sizes(x)
    flattens = conversion.opset < 13
    axis = conversion.axis(conversion.integer("axis", 1 if flattens else -1), len(sizes))
    if flattens or axis == len(sizes) - 1:
        rows = _with_joined_tail(conversion, x, axis)
        return [_with_shape(conversion, conversion.emit(op_class(rows)).result, sizes)]
    _known_tail(sizes[: axis + 1], axis)
    order = [index for index in range(len(sizes)) if index != axis]
    transposed = conversion.transpose(x, (*order, axis))
    result = conversion.emit(op_class(transposed)).result
    return [conversion.transpose(result, (*order[:axis], len(sizes) - 1, *range(axis, len(sizes) - 1)))]


def _parameter(conversion: Conversion, index: int, shape: tuple[int, ...]) -> SSAValue:
    """Return a constant parameter of a normalisation as one row.

    Raises:
        NotCovered: it is no float constant, or does not fit `shape`.
    """
    value, array = conversion.input(index), conversion.constant(index)
    if value is None or array is None:
        raise NotCovered(f"expected a constant float parameter as input {index}, got another value")
    name = value.name or ""
    try:
        row = np.broadcast_to(array, shape).reshape(-1)
    except ValueError:
        text = "x".join(map(str, array.shape)) or "scalar"
        raise NotCovered(f"expected shape {'x'.join(map(str, shape))} of parameter {name}, got {text}") from None
    return conversion.emit_constant(row, name, "" if array.shape == row.shape else f"row{shape}")


def _convert_batch_norm(conversion: Conversion) -> Sequence[SSAValue]:
    """Inference only: before opset 14 further outputs mean training, since then the attribute does."""
    if conversion.integer("training_mode", 0) != 0:
        raise NotCovered("expected training_mode=0, got 1")
    if conversion.integer("spatial", 1) != 1:
        raise NotCovered("expected spatial=1, got 0")
    refuse_further_outputs(conversion)
    x = conversion.tensor(0)
    sizes = conversion.sizes(x)
    if len(sizes) < 2 or not is_known(sizes[1]):
        raise NotCovered(f"expected rank 2 or more with a known size of axis 1, got an input {shape_words(sizes)}")
    scale, bias, mean, variance = (_parameter(conversion, index, (int(sizes[1].coefficient),)) for index in range(1, 5))
    epsilon = conversion.number("epsilon", 1e-5)
    return [conversion.emit(BatchNormOp(x, (scale, bias, mean, variance), epsilon)).result]


def _normalized(conversion: Conversion) -> tuple[SSAValue, tuple[int, ...]]:
    """Return the input with the normalised axes as one, and their sizes."""
    refuse_further_outputs(conversion)
    if conversion.integer("stash_type", 1) != 1:
        raise NotCovered(f"expected stash_type=1, got {conversion.integer('stash_type', 1)}")
    x = conversion.tensor(0)
    sizes = conversion.sizes(x)
    axis = conversion.axis(conversion.integer("axis", -1), len(sizes))
    rows = _with_joined_tail(conversion, x, axis)
    return rows, tuple(int(size.coefficient) for size in sizes[axis:])


def _convert_layer_norm(conversion: Conversion) -> Sequence[SSAValue]:
    """All axes from `axis` on are normalised together."""
    rows, shape = _normalized(conversion)
    scale = _parameter(conversion, 1, shape)
    bias = _parameter(conversion, 2, shape) if conversion.has_input(2) else None
    result = conversion.emit(LayerNormOp(rows, scale, bias, conversion.number("epsilon", 1e-5))).result
    return [_with_shape(conversion, result, conversion.sizes(conversion.tensor(0)))]


def _convert_rms_norm(conversion: Conversion) -> Sequence[SSAValue]:
    rows, shape = _normalized(conversion)
    result = conversion.emit(
        RmsNormOp(rows, _parameter(conversion, 1, shape), conversion.number("epsilon", 1e-5))
    ).result
    return [_with_shape(conversion, result, conversion.sizes(conversion.tensor(0)))]


def _convert_skip_norm(
    op_class: type[LayerNormOp | RmsNormOp], bias_index: int, conversion: Conversion
) -> Sequence[SSAValue]:
    """com.microsoft: the sum of two values and of a bias is normalised; output 3 is that sum.

    Raises:
        NotCovered: mean and deviation (outputs 1 and 2) are read, or a value is repeated along more than one axis.
    """
    for output in conversion.node.outputs[1:3]:
        if output.uses() or output.is_graph_output():
            raise NotCovered(f"expected the result and the sum alone to be read, got {output.name}")
    x, skip = conversion.tensor(0), conversion.tensor(1)
    sizes = conversion.sizes(x)
    features = (_known_tail(sizes, len(sizes) - 1),)
    if broadcast(sizes, conversion.sizes(skip)) != sizes:
        shapes = f"{shape_words(sizes)} and {shape_words(conversion.sizes(skip))}"
        raise NotCovered(f"expected two values of one shape, got {shapes}")
    if conversion.has_input(bias_index):
        # as the operator adds them: first the bias of the layer before it, then what skips that layer
        x = conversion.emit(AddOp(x, _parameter(conversion, bias_index, features))).result
    total = conversion.emit(AddOp(x, skip)).result
    scale, epsilon = _parameter(conversion, 2, features), conversion.number("epsilon", 1e-12)
    if op_class is RmsNormOp:
        result = conversion.emit(RmsNormOp(total, scale, epsilon)).result
    else:
        shift = _parameter(conversion, 3, features) if conversion.has_input(3) else None
        result = conversion.emit(LayerNormOp(total, scale, shift, epsilon)).result
    return [result, total, total, total]


def _convert_reduce_sum(conversion: Conversion) -> Sequence[SSAValue]:
    """Return sums: over the axis before the last one, what pools the tokens of a text, or means times their count."""
    if not conversion.scope.all_native:
        raise NotCovered("no layer gains by it")
    x = conversion.tensor(0)
    sizes, axes = conversion.sizes(x), _reduced_axes(conversion, 13)
    if axes == [len(sizes) - 2] and is_known(sizes[-1]) and sizes[-1].coefficient:
        return [_without_axis(conversion, conversion.emit(SumRowsOp(x)).result, sizes, axes[0])]
    return [_times(conversion, _mean_over(conversion, axes), product([sizes[axis] for axis in axes]))]


def _convert_reduce_max(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the largest along axes: a pooling of images of one channel, or of all pixels of images."""
    return [_largest_over(conversion, conversion.tensor(0))]


def _convert_reduce_min(conversion: Conversion) -> Sequence[SSAValue]:
    opposite = ActivationAttr("neg")
    x = conversion.emit(ActivateOp(conversion.tensor(0), opposite)).result
    return [conversion.emit(ActivateOp(_largest_over(conversion, x), opposite)).result]


def _largest_over(conversion: Conversion, x: SSAValue) -> SSAValue:
    if not conversion.scope.all_native:
        raise NotCovered("no layer gains by it")
    sizes, reduced = conversion.sizes(x), _reduced_axes(conversion, 18)
    if not reduced:
        return x
    kept = [axis for axis in range(len(sizes)) if axis not in reduced]
    if reduced != list(range(len(kept), len(sizes))):
        x = conversion.transpose(x, (*kept, *reduced))
    tail = _known_tail(conversion.sizes(x), len(kept))
    # images and their channels stand first; more axes are images, too
    leading = tuple(sizes[axis] for axis in kept)
    channels = leading[-1:] if len(leading) > 1 and is_known(leading[-1]) and leading[-1] != NONE else (ONE,)
    images = product(leading) / channels[0]
    image = conversion.reshape(x, (images, *channels, Size.known(tail)))
    pooled = conversion.emit(Pool2dOp(image, "max", WindowAttr((1, tail)))).result
    if conversion.integer("keepdims", 1) == 1:
        return conversion.reshape(pooled, tuple(ONE if axis in reduced else size for axis, size in enumerate(sizes)))
    return conversion.reshape(pooled, leading)


def _convert_reduce_l2(conversion: Conversion) -> Sequence[SSAValue]:
    """Return lengths of vectors, which lie along the last axis."""
    x, axis = _alone_reduced(conversion, 18)
    sizes = conversion.sizes(x)
    if axis != len(sizes) - 1:
        raise NotCovered(f"expected vectors along the last axis, got axis {axis} of {shape_words(sizes)}")
    squares = _sums(conversion, conversion.emit(MulOp(x, x)).result)
    lengths = conversion.emit(ActivateOp(squares, ActivationAttr("sqrt"))).result
    return [_without_axis(conversion, lengths, sizes, axis)]


def _alone_reduced(conversion: Conversion, axes_are_input_since: int) -> tuple[SSAValue, int]:
    """Return the input, and the axis that is reduced: one of the last two.

    Raises:
        NotCovered: it is another one, or several, or the model is not compiled as a whole.
    """
    if not conversion.scope.all_native:
        raise NotCovered("no layer gains by it")
    x, axes = conversion.tensor(0), axes_of(conversion, axes_are_input_since)
    rank = len(conversion.sizes(x))
    if not axes or len(axes) != 1 or conversion.axis(axes[0], rank) < rank - 2:
        raise NotCovered(f"expected one of the last two axes to be reduced, got {list(axes or ())} of {rank}")
    return x, conversion.axis(axes[0], rank)


def _sums(conversion: Conversion, x: SSAValue) -> SSAValue:
    """Return sums over the last axis: means, as often as there are values; the axis is gone."""
    size = conversion.sizes(x)[-1]
    _known_tail((size,), 0)
    return _times(conversion, conversion.emit(ReduceMeanOp(x)).result, size)


def _times(conversion: Conversion, x: SSAValue, count: Size) -> SSAValue:
    """Return a tensor times a known number."""
    number = conversion.emit_constant(np.array(float(count.coefficient), np.float32), "")
    return conversion.emit(MulOp(x, number)).result


def _without_axis(conversion: Conversion, result: SSAValue, sizes: SymbolicShape, axis: int) -> SSAValue:
    """Return a result with an axis of 1 in the place of that which was reduced, or without it."""
    kept = (ONE,) if conversion.integer("keepdims", 1) == 1 else ()
    return conversion.reshape(result, (*sizes[:axis], *kept, *sizes[axis + 1 :]))


def _convert_reduce_mean(conversion: Conversion) -> Sequence[SSAValue]:
    return [_mean_over(conversion, _reduced_axes(conversion, 18))]


def _reduced_axes(conversion: Conversion, axes_are_input_since: int) -> list[int]:
    """Return the axes that are reduced, all of them where none are stated."""
    axes, rank = axes_of(conversion, axes_are_input_since), len(conversion.sizes(conversion.tensor(0)))
    if conversion.integer("noop_with_empty_axes", 0) and not axes:
        return []
    return sorted({conversion.axis(axis, rank) for axis in axes}) if axes else list(range(rank))


def _mean_over(conversion: Conversion, reduced: Sequence[int]) -> SSAValue:
    """The reduced axes go last and become one; their mean is taken, and the axis of size 1 goes where it belongs.

    That of all pixels of images is a pooling.
    """
    x = conversion.tensor(0)
    sizes = conversion.sizes(x)
    rank = len(sizes)
    if not reduced:
        return x
    kept = [axis for axis in range(rank) if axis not in reduced]
    if rank == 4 and kept == [0, 1] and all(size > 0 for size in shape_of(x)[1:]):
        pooled = conversion.emit(Pool2dOp(x, "average", WindowAttr(shape_of(x)[2:]))).result
        return pooled if conversion.integer("keepdims", 1) == 1 else conversion.reshape(pooled, sizes[:2])
    if reduced != list(range(len(kept), rank)):
        x = conversion.transpose(x, (*kept, *reduced))
    rows = _with_joined_tail(conversion, x, len(kept))
    result = conversion.emit(ReduceMeanOp(rows)).result
    if conversion.integer("keepdims", 1) == 1:
        return _with_shape(conversion, result, tuple(ONE if axis in reduced else sizes[axis] for axis in range(rank)))
    return conversion.reshape(result, tuple(sizes[axis] for axis in kept))


NORMALIZATION_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {
        ("", "BatchNormalization"): _convert_batch_norm,
        ("", "LayerNormalization"): _convert_layer_norm,
        ("", "LogSoftmax"): partial(_convert_softmax, LogSoftmaxOp),
        ("", "RMSNormalization"): _convert_rms_norm,
        ("", "ReduceL2"): _convert_reduce_l2,
        ("", "ReduceMax"): _convert_reduce_max,
        ("", "ReduceMean"): _convert_reduce_mean,
        ("", "ReduceMin"): _convert_reduce_min,
        ("", "ReduceSum"): _convert_reduce_sum,
        ("", "SimplifiedLayerNormalization"): _convert_rms_norm,
        ("", "Softmax"): partial(_convert_softmax, SoftmaxOp),
        ("com.microsoft", "SkipLayerNormalization"): partial(_convert_skip_norm, LayerNormOp, 4),
        ("com.microsoft", "SkipSimplifiedLayerNormalization"): partial(_convert_skip_norm, RmsNormOp, 3),
    }
)
"""(domain, operator) -> converter."""

ONE_NODE_NORMALIZATIONS: Final = frozenset(
    {
        ("", "SimplifiedLayerNormalization"),
        ("com.microsoft", "SkipLayerNormalization"),
        ("com.microsoft", "SkipSimplifiedLayerNormalization"),
    }
)
"""Operators that would be written again as several nodes, which take longer: outside of networks they stay."""
