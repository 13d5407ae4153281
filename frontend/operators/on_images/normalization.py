"""Nodes that normalise images over their pixels: InstanceNormalization, GroupNormalization, and as torch writes it.

```
y = GroupNormalization<num_groups = G>(x, scale, bias)                                    [N, C, H, W]
h = Reshape(x, [0, G, -1])  n = InstanceNormalization(h, 1, 0)  y = Reshape(n, Shape(x))  the same, without scale, bias
```

becomes means of all pixels, of a channel or of the channels of a group, and arithmetic with what is spread over pixels:

```
m = mean(x)   c = x - m   v = mean(c c)   y = c (scale / sqrt(v + epsilon)) + bias        m, v [N, C, 1, 1]
```
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ....dialect.attributes.activations import ActivationAttr
from ....dialect.attributes.window import WindowAttr
from ....dialect.ops.elementwise import ActivateOp, AddOp, MulOp, SubOp
from ....dialect.ops.images import Conv2dOp, Pool2dOp, image_shape
from ....dialect.tensors import shape_of
from ...folding.known_sizes import extent_of
from ..conversion import Conversion, Converter, NotCovered
from ..movement import reshaped
from ..patterns import ANY, Hole, Match, op
from .windows import checked_image, image_of

Parameter = NDArray[np.float32]
"""A number for each channel."""


def _convert_instance_norm(conversion: Conversion) -> Sequence[SSAValue]:
    x = image_of(conversion)
    channels = shape_of(x)[1]
    scale, bias = (_parameter(conversion, index, channels) for index in (1, 2))
    return [_normalized(conversion, x, channels, conversion.number("epsilon", 1e-5), (scale, bias))]


def _convert_group_norm(conversion: Conversion) -> Sequence[SSAValue]:
    """Since opset 21 there is a scale and a bias for each channel, before for each group."""
    x, groups = image_of(conversion), conversion.integer("num_groups", 0)
    channels = shape_of(x)[1]
    if groups < 1 or channels % groups:
        raise NotCovered(f"expected num_groups to divide {channels} channels, got {groups}")
    if conversion.integer("stash_type", 1) != 1:
        raise NotCovered(f"expected stash_type=1, got {conversion.integer('stash_type', 1)}")
    count = channels if conversion.opset >= 21 else groups
    scale, bias = (np.repeat(_parameter(conversion, index, count), channels // count) for index in (1, 2))
    return [_normalized(conversion, x, groups, conversion.number("epsilon", 1e-5), (scale, bias))]


def _parameter(conversion: Conversion, index: int, count: int) -> Parameter:
    value = conversion.constant(index)
    if value is None or value.shape != (count,):
        raise NotCovered(f"expected a constant [{count}] as input {index}, got another value")
    return value


def group_norm_or(convert: Converter) -> Converter:
    """Return a converter of Reshape that takes the one behind a group norm, as torch writes it, as a norm of images."""

    def converter(conversion: Conversion) -> Sequence[SSAValue]:
        result = _group_norm_of_reshapes(conversion)
        return convert(conversion) if result is None else [result]

    return converter


GROUPED: Final = op.Reshape(
    op.InstanceNormalization(
        Hole("groups", op.Reshape(Hole("x"), ANY)), Hole("scale"), Hole("bias"), epsilon=Hole("epsilon")
    ),
    ANY,
)


def _group_norm_of_reshapes(conversion: Conversion) -> SSAValue | None:
    """Return what a Reshape yields behind a norm of groups that one made; None where it is another one."""
    match, scope = Match(conversion), conversion.scope
    if match.fault_of(lambda: match.root(GROUPED)) is not None:
        return None
    image, between = match.value("x"), scope.sizes_of_onnx_value(match.value("groups"))
    scale, bias = (scope.constant_of(match.value(name)) for name in ("scale", "bias"))
    sizes, target = scope.sizes_of_onnx_value(image), conversion.shape_value(1)
    if between is None or sizes is None or target is None or scale is None or bias is None:
        return None
    x = checked_image(conversion.tensor_of(image))
    groups, channels = extent_of(between[1]), shape_of(x)[1]
    kept = between[0] == sizes[0] and reshaped(conversion, between, target) == sizes
    if not kept or groups < 1 or channels % groups or scale.shape != (groups,) or bias.shape != (groups,):
        return None
    conversion.replaces(match.nodes)
    parameters = [np.repeat(array.astype(np.float32), channels // groups) for array in (scale, bias)]
    return _normalized(conversion, x, groups, match.get("epsilon", float), (parameters[0], parameters[1]))


def _normalized(
    conversion: Conversion, x: SSAValue, groups: int, epsilon: float, parameters: tuple[Parameter, Parameter]
) -> SSAValue:
    """Return images of which each group of channels has mean 0 and deviation 1, times a scale, with a bias."""
    scale, bias = (_of_channels(conversion, x, value) for value in parameters)
    centred = conversion.emit(SubOp(x, _mean(conversion, x, groups))).result
    squares = conversion.emit(ActivateOp(centred, ActivationAttr("square"))).result
    number = conversion.emit_constant(np.full(1, epsilon, np.float32), "")
    shifted = conversion.emit(AddOp(_mean(conversion, squares, groups), number)).result
    root = conversion.emit(ActivateOp(shifted, ActivationAttr("sqrt"))).result
    inverse = conversion.emit(ActivateOp(root, ActivationAttr("reciprocal"))).result
    factor = conversion.emit(MulOp(inverse, scale)).result
    return conversion.emit(AddOp(conversion.emit(MulOp(centred, factor)).result, bias)).result


def _mean(conversion: Conversion, x: SSAValue, groups: int) -> SSAValue:
    """Return the mean of all pixels of each channel, or of the channels of its group: [N, C, 1, 1]."""
    channels = shape_of(x)[1]
    pooled = conversion.emit(Pool2dOp(x, "average", WindowAttr(image_shape(x)[2:]))).result
    if groups == channels:
        return pooled
    together = channels // groups
    matrix = np.kron(np.eye(groups, dtype=np.float32), np.full((together, together), 1 / together, np.float32))
    weight = conversion.emit_constant(matrix, "means", f"{groups} groups of {together}")
    return conversion.emit(Conv2dOp(pooled, weight, None, WindowAttr((1, 1)))).result


def _of_channels(conversion: Conversion, x: SSAValue, values: Parameter) -> SSAValue:
    return conversion.emit_constant(values.reshape(-1, *(1,) * (len(shape_of(x)) - 2)), "")


NORMALIZING_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {
        ("", "GroupNormalization"): _convert_group_norm,
        ("", "InstanceNormalization"): _convert_instance_norm,
    }
)
"""(domain, operator) -> converter."""
