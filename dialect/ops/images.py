"""Layers on images: convolutions, pooling, resizing.

Images are [N, C, H, W], or [N, C, W]: of one row each. The length of a single row may be open, as only a call knows
it. Their values are floats, or codes: integers of eight bits that stand for values, value = scale * (code - zero).
"""

from typing import ClassVar, Final, Literal, cast

from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, IntegerAttr, StringAttr, TensorType, f64, i64
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..attributes.activations import ActivationAttr
from ..attributes.codes import CODE_TENSOR, CodesAttr, code_tensor, codes_in
from ..attributes.io_bounds import IoBoundsAttr
from ..attributes.kernels import KernelAttr
from ..attributes.resampling import ResamplingAttr
from ..attributes.window import WindowAttr
from ..tensors import (
    DENSE_TENSOR,
    DYNAMIC,
    F32_TENSOR,
    F32Tensor,
    Shape,
    f32_tensor,
    shape_of,
    shape_text,
    verify_bias,
)
from .axis_maps import Axes, AxisMap, HasAxisMap, own_axes, with_quick_operands
from .constants import constant_array
from .elementwise import BinaryOp
from .quantized_layers import FOUND_CODES, QuantizedLayer, ReadsCodes, verify_codes

IMAGE_RANKS = (3, 4)

USUAL_LENGTH: Final = 255
"""Length that a row is taken to have where only a call knows it."""

MOST_OPEN_TAPS: Final = 128
"""Taps of a window over such a row: fewer than the usual length."""

Pooling = Literal["max", "average", "average_with_pads"]
POOLINGS: tuple[Pooling, ...] = ("max", "average", "average_with_pads")


def is_image_rank(rank: int) -> bool:
    """Return whether values of a rank may be images."""
    return rank in IMAGE_RANKS


def image_shape(value: SSAValue) -> tuple[int, int, int, int]:
    """Return the number of images, their channels, height and width: the usual one where it is open."""
    samples, channels, *extents = shape_of(value)
    height, width = extents if len(extents) == 2 else (1, *extents)
    return samples, channels, height, USUAL_LENGTH if width == DYNAMIC and is_open(value) else width


def is_open(value: SSAValue) -> bool:
    """Return whether a value is images of one row whose length only a call knows."""
    shape = shape_of(value)
    return len(shape) in IMAGE_RANKS and shape[-1] == DYNAMIC and shape[1] != DYNAMIC and shape[2:-1] in ((), (1,))


def shape_like(x: SSAValue, channels: int, height: int, width: int) -> Shape:
    """Return the shape of images of another size that have the rank of `x`, and are open where it is."""
    samples, *rest = shape_of(x)
    if is_open(x):
        return samples, channels, *rest[1:]
    return (samples, channels, height, width) if len(rest) == 3 else (samples, channels, width)


Spread = Literal["tile", "per_feature", "first_column", "one_value"]
"""An image; a constant for each channel; a value [N, C, 1, 1] for each channel of each image; one constant."""


def _axes_of(value: SSAValue, prefix: str) -> Axes:
    axes = own_axes(value, prefix)
    return (*axes[:-1], "length") if is_open(value) else axes


class ImageAxes(HasAxisMap):
    """Images stay apart; channels, rows and columns have an order that the op relies on.

    Operands of rank 3 and 4 are images, all others parameters. Open images have one length.
    """

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        images = [is_image_rank(len(shape_of(operand))) for operand in op.operands]
        operands = [_axes_of(operand, f"x{index}.") for index, operand in enumerate(op.operands)]
        results = [_axes_of(result, f"y{index}.") for index, result in enumerate(op.results)]
        data = [("n", *axes[1:]) if is_image else axes for axes, is_image in zip(operands, images, strict=True)]
        written = [("n", *axes[1:]) for axes in results]
        parameters = frozenset(index for index, is_image in enumerate(images) if not is_image)
        return AxisMap.in_order(data, written, "n", parameters)


@with_quick_operands
@irdl_op_definition
class Conv2dOp(ReadsCodes, IRDLOperation):
    """activation(sum over taps and channels of x weight + bias + residual): x [N, C, H, W], result [N, O, H', W'].

    The weight is a matrix [C kh kw, O], with an input for each channel and, for each of these, each tap of the window
    row by row; groups are zeros in it. So a convolution is a linear layer over pixels. `kernel` has the times of a
    tile of pixels, `dense_us` that of a whole image by a dense product, `io_bounds` the transfers of one pixel, whose
    inputs are the values of its window.

    Where x are codes (integers of eight bits, of which c stands for scale * (c - zero)), a convolution is the layer on
    codes that `pebble.linear` is, for each pixel: weight and bias are integers, `times` multiplies the sums, pads have
    the code of 0, and there is no residual. `precision` "u8" rounds x to codes that are found at each call,
    "bf16" rounds x and weight to bfloat16, as that of `pebble.linear`.

    ```mlir
    %y = pebble.conv2d %x, %w bias %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]>
        : (tensor<?x4x8x8xf32>, tensor<4x2xf32>) -> tensor<?x2x8x8xf32>
    %z = pebble.conv2d %q, %v times %m : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]>
        : (tensor<?x4x8x8x!pebble.codes<u8 scale 0.05 zero 128>>, tensor<4x2xf32>) -> tensor<?x2x8x8xf32>
    ```
    """

    name = "pebble.conv2d"

    x = operand_def(DENSE_TENSOR | CODE_TENSOR)
    weight = operand_def(F32_TENSOR)
    bias = opt_operand_def(DENSE_TENSOR)
    residual = opt_operand_def(DENSE_TENSOR)
    times = opt_operand_def(DENSE_TENSOR)
    window = prop_def(WindowAttr)
    activation = opt_prop_def(ActivationAttr)
    precision = opt_prop_def(StringAttr)
    kernel = opt_prop_def(KernelAttr)
    io_bounds = opt_prop_def(IoBoundsAttr)
    dense_us = opt_prop_def(FloatAttr.constr(f64))
    result = result_def(DENSE_TENSOR | CODE_TENSOR)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure(), ImageAxes())
    assembly_format: ClassVar = (
        "$x `,` $weight (`bias` $bias^ `:` type($bias))? (`residual` $residual^ `:` type($residual))? "
        "(`times` $times^ `:` type($times))? `window` $window (`activation` $activation^)? (`precision` $precision^)? "
        "(`kernel` $kernel^)? (`io_bounds` $io_bounds^)? (`dense_us` $dense_us^)? attr-dict "
        "`:` `(` type($x) `,` type($weight) `)` `->` type($result)"
    )

    def __init__(
        self,
        x: SSAValue,
        weight: SSAValue,
        bias: SSAValue | None,
        window: WindowAttr,
        residual: SSAValue | None = None,
        times: SSAValue | None = None,
    ) -> None:
        _, _, height, width = image_shape(x)
        shape = shape_like(x, shape_of(weight)[1], *window.result_size(height, width))
        super().__init__(
            operands=[x, weight, bias, residual, times],
            properties={"window": window},
            result_types=[f32_tensor(shape)],
        )

    @staticmethod
    def of_codes(x: SSAValue, layer: QuantizedLayer, window: WindowAttr, output: CodesAttr | None = None) -> "Conv2dOp":
        """Return the convolution of a layer on codes whose inputs are the taps of a window.

        The result is rounded to the codes `output`, if they are given.
        """
        made = Conv2dOp(x, layer.weight, layer.bias, window, times=layer.multiplier)
        made.activation = layer.activation
        made.precision = StringAttr(FOUND_CODES) if layer.codes.is_dynamic else None
        if output is not None:
            Rewriter.replace_value_with_new_type(made.result, code_tensor(output, shape_of(made.result)))
        return made

    def verify_(self) -> None:
        _verify_image(self.x, self.window)
        shape, weight = image_shape(self.x), shape_of(self.weight)
        rows, columns = self.window.kernel_size
        if len(weight) != 2 or DYNAMIC in weight or weight[0] != shape[1] * rows * columns:
            raise VerifyException(f"expected a weight of {shape[1] * rows * columns} inputs, got {shape_text(weight)}")
        verify_bias(self.bias, weight[1])
        expected = shape_like(self.x, weight[1], *self.window.result_size(*shape[2:]))
        _verify_result(self.result, expected)
        if self.residual is not None and shape_of(self.residual)[1:] != expected[1:]:
            raise VerifyException(
                f"expected residual {shape_text(expected)}, got {shape_text(shape_of(self.residual))}"
            )
        if self.residual is not None and self.codes is not None:
            raise VerifyException("expected a residual of a convolution of floats, got one of codes")
        verify_codes(self)


@irdl_op_definition
class Depthwise2dOp(IRDLOperation):
    """A convolution of each channel by itself: x [N, C, H, W], weight [kh kw, C], result [N, C, H', W'].

    ```mlir
    %y = pebble.depthwise2d %x, %w window <[3, 3] strides [1, 1] dilations [1, 1] pads [1, 1, 1, 1]>
        : (tensor<?x4x8x8xf32>, tensor<9x4xf32>) -> tensor<?x4x8x8xf32>
    ```
    """

    name = "pebble.depthwise2d"

    x = operand_def(DENSE_TENSOR)
    weight = operand_def(DENSE_TENSOR)
    bias = opt_operand_def(DENSE_TENSOR)
    window = prop_def(WindowAttr)
    activation = opt_prop_def(ActivationAttr)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), ImageAxes())
    assembly_format: ClassVar = (
        "$x `,` $weight (`bias` $bias^)? `window` $window (`activation` $activation^)? attr-dict `:` "
        "functional-type(operands, results)"
    )

    def __init__(self, x: SSAValue, weight: SSAValue, bias: SSAValue | None, window: WindowAttr) -> None:
        _, channels, height, width = image_shape(x)
        shape = shape_like(x, channels, *window.result_size(height, width))
        super().__init__(operands=[x, weight, bias], properties={"window": window}, result_types=[f32_tensor(shape)])

    def verify_(self) -> None:
        _verify_image(self.x, self.window)
        shape, weight = image_shape(self.x), shape_of(self.weight)
        rows, columns = self.window.kernel_size
        if weight != (rows * columns, shape[1]):
            raise VerifyException(f"expected weight {rows * columns}x{shape[1]}, got {shape_text(weight)}")
        verify_bias(self.bias, weight[1])
        _verify_result(self.result, shape_like(self.x, shape[1], *self.window.result_size(*shape[2:])))


def expansion_of(op: Depthwise2dOp) -> Conv2dOp | None:
    """Return the pointwise convolution of fewer channels that a depthwise one of a stride reads, and nothing else does.

    It may compute pixels in the order in which they are read, of which there are fewer before it.
    """
    conv = op.x.owner
    if op.window.stride == (1, 1) or not isinstance(conv, Conv2dOp) or not conv.result.has_one_use():
        return None
    is_plain = conv.codes is None and conv.residual is None and conv.window == WindowAttr((1, 1))
    return conv if is_plain and shape_of(conv.x)[1] < shape_of(conv.result)[1] else None


@irdl_op_definition
class Pool2dOp(IRDLOperation):
    """The largest value of each window, or the mean: of the values that are there, or with pads as zeros.

    The largest of codes is one of them; means are floats, of floats.

    ```mlir
    %y = pebble.pool2d "max" %x window <[2, 2] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]>
        : (tensor<?x4x8x8xf32>) -> tensor<?x4x4x4xf32>
    ```
    """

    name = "pebble.pool2d"

    x = operand_def(DENSE_TENSOR | CODE_TENSOR)
    kind = prop_def(StringAttr)
    window = prop_def(WindowAttr)
    result = result_def(DENSE_TENSOR | CODE_TENSOR)

    traits = traits_def(Pure(), ImageAxes())
    assembly_format: ClassVar = "$kind $x `window` $window attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, kind: Pooling, window: WindowAttr) -> None:
        _, channels, height, width = image_shape(x)
        shape = shape_like(x, channels, *window.result_size(height, width))
        super().__init__(
            operands=[x],
            properties={"kind": StringAttr(kind), "window": window},
            result_types=[TensorType(cast("F32Tensor", x.type).element_type, shape)],
        )

    def verify_(self) -> None:
        _verify_image(self.x, self.window)
        shape = image_shape(self.x)
        if self.kind.data not in POOLINGS:
            raise VerifyException(f"expected a pooling {', '.join(POOLINGS)}, got {self.kind.data!r}")
        if is_open(self.x) and self.kind.data == "average" and any(self.window.pads):
            raise VerifyException("expected a mean without pads where the length is open, got one with pads")
        (rows, columns), (top, left, bottom, right) = self.window.kernel_size, self.window.pad_sizes
        if max(top, bottom) >= rows or max(left, right) >= columns:
            raise VerifyException(f"expected fewer pads than taps, got {[top, left, bottom, right]}")
        read, written = codes_in(self.x.type), codes_in(self.result.type)
        if read != written or (read is not None and self.kind.data != "max"):
            raise VerifyException("expected the largest of codes, which are codes of the same scale and zero")
        _verify_result(self.result, shape_like(self.x, shape[1], *self.window.result_size(*shape[2:])))


@irdl_op_definition
class Resample2dOp(IRDLOperation):
    """Pixels of an image in other places: resized, padded, cut; `fill` stands where it has none.

    ```mlir
    %y = pebble.resample2d %x rows <[0, 0, 1, 1]> columns <[-1, 0, 1]> fill 0.0
        : (tensor<?x4x2x2xf32>) -> tensor<?x4x4x3xf32>
    ```
    """

    name = "pebble.resample2d"

    x = operand_def(DENSE_TENSOR)
    rows = prop_def(ResamplingAttr)
    columns = prop_def(ResamplingAttr)
    fill = prop_def(FloatAttr.constr(f64))
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), ImageAxes())
    assembly_format: ClassVar = (
        "$x `rows` $rows `columns` $columns `fill` $fill attr-dict `:` functional-type(operands, results)"
    )

    def __init__(self, x: SSAValue, rows: ResamplingAttr, columns: ResamplingAttr, fill: float = 0.0) -> None:
        shape = shape_like(x, image_shape(x)[1], rows.size, columns.size)
        super().__init__(
            operands=[x],
            properties={"rows": rows, "columns": columns, "fill": FloatAttr(fill, f64)},
            result_types=[f32_tensor(shape)],
        )

    def verify_(self) -> None:
        _verify_image(self.x)
        _, channels, height, width = image_shape(self.x)
        if not self.rows.fits(height) or not self.columns.fits(width):
            raise VerifyException(f"rows or columns that an image of {height}x{width} does not have")
        _verify_result(self.result, shape_like(self.x, channels, self.rows.size, self.columns.size))


@irdl_op_definition
class Interleave2dOp(IRDLOperation):
    """Channels that become pixels: x [N, rows columns C, H, W], result [N, C, H', W'], cut to its size.

    Pixel (rows i + a, columns j + b) of channel c is pixel (i, j) of channel (a columns + b) C + c, or of channel
    c rows columns + a columns + b where those of one result stand together (`together`).

    ```mlir
    %y = pebble.interleave2d %x by [2, 2] together false : (tensor<?x8x2x2xf32>) -> tensor<?x2x4x3xf32>
    ```
    """

    name = "pebble.interleave2d"

    x = operand_def(DENSE_TENSOR)
    by = prop_def(ArrayAttr[IntegerAttr])
    together = prop_def(BoolAttr)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), ImageAxes())
    assembly_format: ClassVar = "$x `by` $by `together` $together attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, by: tuple[int, int], size: tuple[int, int], *, together: bool = False) -> None:
        """Make so many rows and columns of each pixel, of which those within a height and a width are left."""
        channels = image_shape(x)[1] // (by[0] * by[1])
        super().__init__(
            operands=[x],
            properties={
                "by": ArrayAttr([IntegerAttr(count, i64) for count in by]),
                "together": BoolAttr.from_bool(together),
            },
            result_types=[f32_tensor(shape_like(x, channels, *size))],
        )

    @property
    def parts(self) -> tuple[int, int]:
        """The rows and columns of each pixel."""
        rows, columns = (one.value.data for one in self.by)
        return rows, columns

    def channels_of_parts(self) -> list[tuple[int, int]]:
        """Return the first channel of each part of a pixel, row by row, and from each of its channels to the next."""
        rows, columns = self.parts
        channels = image_shape(self.result)[1]
        return [(part, rows * columns) if self.is_together else (part * channels, 1) for part in range(rows * columns)]

    @property
    def is_together(self) -> bool:
        """Whether the channels of one result stand together."""
        return bool(self.together.value.data)

    def verify_(self) -> None:
        _verify_image(self.x)
        if len(self.by) != 2 or min(self.parts) < 1:
            raise VerifyException(f"expected two numbers from 1 on, got {self.by}")
        (rows, columns), (_, channels, height, width) = self.parts, image_shape(self.x)
        _, _, *size = image_shape(self.result)
        if channels % (rows * columns) or not (0 < size[0] <= rows * height and 0 < size[1] <= columns * width):
            raise VerifyException(f"expected at most {rows} x {columns} parts of {height}x{width}, got {size}")
        _verify_result(self.result, shape_like(self.x, channels // (rows * columns), *size))


WindowOp = Conv2dOp | Depthwise2dOp | Pool2dOp
"""Ops that read windows."""

ImageLayerOp = Conv2dOp | Depthwise2dOp | Pool2dOp | Resample2dOp | Interleave2dOp
"""Ops that only images have."""


def fewest_windows(op: WindowOp) -> int:
    """Return the results of a row that is shorter than a window: onnxruntime has one of a pooling with a stride."""
    is_largest = isinstance(op, Pool2dOp) and op.kind.data == "max"
    return int(is_largest and op.window.strides[1] > 1 and op.window.added_to_length + 1 < op.window.strides[1])


def is_largest_of_pixels(op: Pool2dOp) -> bool:
    """Return whether each result is the largest of a window, less than the image, that has a pixel in it."""
    _, _, height, width = image_shape(op.x)
    is_whole = op.window.is_all_of(height, width)
    return op.kind.data == "max" and op.window.dilations == (1, 1) and not is_whole and 0 not in image_shape(op.x)


def _verify_image(value: SSAValue, window: WindowAttr | None = None) -> None:
    shape = shape_of(value)
    if is_open(value) and window is not None:
        one_row = (window.kernel[0], window.strides[0], *window.pads[::2]) == (1, 1, 0, 0)
        if not one_row or window.kernel[1] > MOST_OPEN_TAPS:
            raise VerifyException(f"expected a window of one row and up to {MOST_OPEN_TAPS} taps, got {window}")
        return
    if not is_image_rank(len(shape)) or DYNAMIC in shape[1:]:
        raise VerifyException(
            f"expected an image of rank 3 or 4 and known channels, height and width, got {shape_text(shape)}"
        )


def _verify_result(result: SSAValue, expected: Shape) -> None:
    if shape_of(result) != expected:
        raise VerifyException(f"expected result {shape_text(expected)}, got {shape_text(shape_of(result))}")


def spreads_of(op: BinaryOp) -> tuple[Spread, Spread] | None:
    """Return how both operands are spread, None where an image network does not do it."""
    left, right = _spread_of(op.left, op.result), _spread_of(op.right, op.result)
    return None if left is None or right is None else (left, right)


def _spread_of(operand: SSAValue, result: SSAValue) -> Spread | None:
    """Return how an operand is spread over the images of a result, None where an image network does not do it."""
    if not is_image_rank(len(shape_of(result))):
        return None
    channels = image_shape(result)[1]
    constant = constant_array(operand)
    rank = len(shape_of(result))
    if constant is not None:
        if constant.size == 1:
            return "one_value"
        aligned = (1,) * (rank - constant.ndim) + constant.shape
        is_spread = aligned == (1, channels) + (1,) * (rank - 2)
        return "per_feature" if is_spread else None
    if operand.type == result.type:
        return "tile"
    is_spread = shape_of(operand) == (shape_of(result)[0], channels) + (1,) * (rank - 2)
    return "first_column" if is_spread else None
