"""Quantized convolutions as native code against sums of integers in numpy: the same bits."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp, ConvertOp, MulOp
from redpebble.dialect.ops.images import Conv2dOp, Pool2dOp
from redpebble.dialect.ops.movement import ConcatOp
from redpebble.dialect.ops.quantized_layers import QuantizedLayer
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.tensors import DYNAMIC, f32_tensor, shape_of
from redpebble.kernels.byte_times import SCATTERED, SHARED
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.passes.images.form_image_networks import FormImageNetworks
from redpebble.passes.images.fuse_convolutions import FuseConvolutions
from redpebble.passes.simplify.drop_dead_units import DropDeadUnits
from redpebble.passes.simplify.merge_equal_units import MergeEqualUnits
from redpebble.sparse.csr import CscMatrix
from tests.support.lowering_modules import HERE, Body, Floats, function, native
from tests.support.quantized_layers import best_form_first

RELU, SILU = ActivationAttr("relu"), ActivationAttr("silu", (1.0,))

GATE = CodesAttr("u8", 1 / 255, 0)
X, H, Y = CodesAttr("u8", 0.02, 117), CodesAttr("s8", 0.03, -5), CodesAttr("u8", 0.04, 0)


@dataclass(frozen=True)
class Conv:
    """A random convolution between channels."""

    channels: int
    outputs: int
    window: WindowAttr
    codes: CodesAttr = X
    output: CodesAttr | None = H
    activation: ActivationAttr | None = None
    density: float = 0.2
    greatest: int = 255
    kernel: str = SCATTERED
    blocks: int = 1
    twins: int = 0
    """The last outputs, which are as many before them again."""

    def emit(self, block: Block, x: SSAValue) -> SSAValue:
        rng = np.random.default_rng((self.channels, self.outputs))
        inputs = self.channels * len(self.window.taps)
        weight = rng.integers(-self.greatest, self.greatest + 1, (inputs, self.outputs))
        weight *= rng.random(weight.shape) < self.density
        weight[:, self.outputs // 2] = 0
        multiplier = rng.uniform(0.5, 2.0, self.outputs) * self.codes.scale / 256
        bias = rng.integers(-1000, 1000, self.outputs)
        for array in (weight.T, bias, multiplier) if self.twins else ():
            array[-self.twins :] = array[-2 * self.twins : -self.twins]
        constants = [
            SparseConstantOp(CscMatrix.from_dense(weight.astype(np.float32))),
            ConstantOp(bias.astype(np.float32)),
            ConstantOp(multiplier.astype(np.float32)),
        ]
        block.add_ops(constants)
        w, b, m = (constant.results[0] for constant in constants)
        layer = QuantizedLayer("conv", w, b, m, self.codes, self.activation)
        if not self.codes.is_dynamic:
            block.add_op(rounding := ConvertOp(x, self.codes))
            x = rounding.result
        op = Conv2dOp.of_codes(x, layer, self.window, self.output)
        op.kernel = KernelAttr({1: self.kernel}, "", {64: 1.0}, blocks={self.kernel: self.blocks})
        block.add_op(op)
        if self.output is None:
            return op.result
        block.add_op(back := ConvertOp(op.result))
        return back.result


def chain(*convs: Conv) -> Body:
    """Convolutions one after the other."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        (value,) = arguments
        for conv in convs:
            value = conv.emit(block, value)
        return [value]

    return body


def outcomes(
    body: Body, x: Floats, target: CpuTarget | None = None, threads: int = 1
) -> tuple[list[NDArray[np.floating]], list[NDArray[np.floating]]]:
    """Return the results of native code, and those of numpy."""
    module = function([f32_tensor((DYNAMIC, *x.shape[1:]))], body)
    expected = interpret(module, {"x0": x})
    FormImageNetworks(threads).apply(Context(), module)
    found = native(module, target or next(iter(HERE.values())), threads).run(None, {"x0": x})
    return list(found), list(expected)


def images(samples: int, channels: int, height: int, width: int) -> Floats:
    rng = np.random.default_rng((channels, height, width))
    return 1.5 * rng.standard_normal((samples, channels, height, width), dtype=np.float32)


def assert_equal(body: Body, *inputs: Floats, target: CpuTarget | None = None, threads: int = 1) -> None:
    """All results of one network are equal for each of some inputs, which differ in the number of samples alone."""
    module = function([f32_tensor((DYNAMIC, *inputs[0].shape[1:]))], body)
    expected = [interpret(module, {"x0": x}) for x in inputs]
    FormImageNetworks(threads).apply(Context(), module)
    network = native(module, target or next(iter(HERE.values())), threads)
    for x, wanted in zip(inputs, expected, strict=True):
        for one, other in zip(network.run(None, {"x0": x}), wanted, strict=True):
            assert np.array_equal(one, other)


def window(kernel: int, stride: int = 1, dilation: int = 1, pad: int | None = None) -> WindowAttr:
    pads = dilation * (kernel // 2) if pad is None else pad
    return WindowAttr((kernel, kernel), (stride, stride), (dilation, dilation), (pads,) * 4)


WINDOWS = [
    (window(1), (9, 11)),
    (window(1, 2), (16, 16)),
    (window(3, dilation=2), (3, 70)),
    (window(2, 3, pad=1), (16, 16)),
    (window(3, pad=0), (9, 11)),
    (WindowAttr((7, 7), (2, 2), (1, 1), (3, 3, 3, 3)), (9, 11)),
    (WindowAttr((3, 2), (2, 1), (1, 2), (0, 1, 1, 1)), (5, 1)),
]


@pytest.mark.parametrize(
    ("form", "size"),
    # what windows read has tests of its own
    [pytest.param(*one, marks=[pytest.mark.slow] if index % 2 else []) for index, one in enumerate(WINDOWS)],
    ids=str,
)
def test_windows_strides_pads_and_dilations_are_exact(form: WindowAttr, size: tuple[int, int]) -> None:
    assert_equal(chain(Conv(5, 7, form)), images(2, 5, *size))


# what is behind the last convolution alone is not what is between others: of four pairs two have all
@best_form_first
@pytest.mark.parametrize(
    ("activation", "output"),
    [
        pytest.param(None, Y, id="linear-rounded", marks=pytest.mark.slow),
        pytest.param(RELU, None, id="relu-values"),
    ],
)
def test_bytes_pass_between_convolutions(
    target: CpuTarget, activation: ActivationAttr | None, output: CodesAttr | None
) -> None:
    first = Conv(6, 20, window(3), X, H, activation)
    second = Conv(20, 9, window(1), H, Y, activation)
    third = Conv(9, 5, window(3, 2), Y, output, activation)
    x = images(7, 6, 10, 13)
    assert_equal(chain(first, second, third), x, x[:1], x[:0], target=target)


def test_convolutions_of_as_many_inputs_have_their_own_outputs() -> None:
    assert_equal(chain(Conv(16, 16, window(1)), Conv(16, 64, window(1), H, Y)), images(1, 16, 8, 8))


SHARE = next(iter(SHARED.values()))


@pytest.mark.parametrize(
    ("kernel", "blocks"),
    [
        # layers of rows have tests of all
        pytest.param(kernel, blocks, marks=[] if (kernel, blocks) in ((SCATTERED, 1), (SHARE, 3)) else pytest.mark.slow)
        for kernel in (SCATTERED, *SHARED.values())
        for blocks in (1, 3)
    ],
)
def test_families_and_blocks_are_exact(kernel: str, blocks: int) -> None:
    assert_equal(chain(Conv(70, 37, window(3), kernel=kernel, blocks=blocks)), images(1, 70, 9, 9))


@pytest.mark.parametrize(
    ("codes", "density"),
    [(CodesAttr("u8", 0.02, 0), 1.0), (CodesAttr("u8", 0.02, 255), 0.0), (CodesAttr("s8", 0.02, 127), 1.0)],
    ids=str,
)
def test_pads_have_the_zero_of_the_codes(codes: CodesAttr, density: float) -> None:
    assert_equal(chain(Conv(4, 4, window(3), codes, density=density)), images(1, 4, 6, 6))


def test_other_activations_are_within_a_step() -> None:
    found, expected = outcomes(chain(Conv(4, 8, window(3), activation=SILU)), images(1, 4, 8, 8))
    assert np.abs(found[0] - expected[0]).max() <= np.float32(1.01) * H.scale


def residual(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """A block of a residual network between two poolings, and what several ops read."""
    (x,) = arguments
    first = Conv(6, 12, window(3), X, H, RELU).emit(block, x)
    block.add_op(pooled := Pool2dOp(first, "max", window(3, 2)))
    second = Conv(12, 12, window(3), H, Y).emit(block, pooled.result)
    block.add_op(total := AddOp(second, pooled.result))
    block.add_op(positive := ActivateOp(total.result, RELU))
    block.add_op(rounded := ActivateOp(positive.result, ActivationAttr("quantize", (H.scale, H.unsigned_zero))))
    third = Conv(12, 8, window(3, 2), H, Y).emit(block, rounded.result)
    shortcut = Conv(12, 8, window(1, 2), H, Y).emit(block, rounded.result)
    block.add_op(joined := ConcatOp([third, shortcut], 1))
    block.add_op(mean := Pool2dOp(joined.result, "average", WindowAttr((4, 4))))
    return [mean.result, rounded.result, joined.result]


@best_form_first
def test_poolings_sums_and_joined_channels_are_codes(target: CpuTarget) -> None:
    found, expected = outcomes(residual, images(3, 6, 14, 15), target)
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert np.array_equal(one, other)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)


def means(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """The mean of all codes, and what reads it beyond its one pixel: its own mean, and a window."""
    (x,) = arguments
    first = Conv(6, 12, window(3), X, H, RELU).emit(block, x)
    second = Conv(12, 12, window(3), H, Y, RELU).emit(block, first)
    block.add_op(mean := Pool2dOp(second, "average", WindowAttr((9, 8))))
    block.add_op(again := Pool2dOp(mean.result, "average", WindowAttr((1, 1))))
    block.add_op(sums := Pool2dOp(again.result, "average", window(3)))
    return [again.result, sums.result]


@best_form_first
def test_what_reads_beyond_a_mean_finds_zeros_there(target: CpuTarget) -> None:
    found, expected = outcomes(means, images(3, 6, 9, 8), target)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_channels_that_are_dead_or_equal_go_to_the_last_bit() -> None:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        # channel 10 of 20 has no weights, one has no readers, and the last ones are those before them
        value = Conv(6, 20, window(3), X, H, RELU, twins=4).emit(block, arguments[0])
        block.add_op(pooled := Pool2dOp(value, "max", window(3, 2)))
        return [Conv(20, 9, window(1), H, Y).emit(block, pooled.result)]

    x = images(2, 6, 9, 8)
    module = function([f32_tensor((DYNAMIC, *x.shape[1:]))], body)
    (expected,) = interpret(module, {"x0": x})
    for single in (FuseConvolutions(), DropDeadUnits(), MergeEqualUnits(), FormImageNetworks()):
        single.apply(Context(), module)
    convolutions = [op for op in module.walk() if isinstance(op, Conv2dOp)]
    assert [shape_of(op.weight)[1] for op in convolutions] == [14, 9]
    assert np.array_equal(native(module, next(iter(HERE.values()))).run(None, {"x0": x})[0], expected)


def mixed(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """Codes that something reads that knows floats alone."""
    (x,) = arguments
    first = Conv(6, 12, window(3), X, H, RELU).emit(block, x)
    block.add_op(mean := Pool2dOp(first, "average", window(2, 2, pad=0)))
    second = Conv(12, 8, window(3), Y, None).emit(block, mean.result)
    third = Conv(12, 8, window(1), Y, H).emit(block, first)
    block.add_op(largest := Pool2dOp(third, "max", WindowAttr((9, 8))))
    return [second, third, largest.result]


@best_form_first
def test_floats_between_convolutions_are_rounded(target: CpuTarget) -> None:
    assert_equal(mixed, images(2, 6, 9, 8), target=target)


def test_threads_change_nothing() -> None:
    body = chain(Conv(6, 20, window(1)), Conv(20, 9, window(3, 2), H, Y))
    x = images(3, 6, 21, 30)
    assert_equal(body, x[:1], x, threads=2)


def test_values_beyond_codes_and_not_numbers_are_rounded() -> None:
    x = images(1, 4, 6, 6)
    x[0, :, 1, :4] = [np.nan, np.inf, -np.inf, 1e30]
    assert_equal(chain(Conv(4, 6, window(3)), Conv(6, 4, window(1), H, Y)), x)


FOUND = CodesAttr.dynamic()


def found(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """Two convolutions whose codes a call finds, of one input, a sum with it, and one behind a pooling of that."""
    (x,) = arguments
    first = Conv(6, 6, window(3), FOUND, None, RELU).emit(block, x)
    second = Conv(6, 9, window(1, 2), FOUND, None).emit(block, x)
    block.add_op(total := AddOp(first, x))
    block.add_op(pooled := Pool2dOp(total.result, "max", window(3, 2)))
    third = Conv(6, 9, window(3, dilation=2), FOUND, None).emit(block, pooled.result)
    return [Conv(9, 5, window(3, 2), H, Y).emit(block, third), second]


@best_form_first
def test_codes_that_a_call_finds_are_those_of_all_images(target: CpuTarget) -> None:
    x = images(3, 6, 14, 15)
    x[2] *= 4
    assert_equal(found, x, np.zeros_like(x), target=target)


def test_every_thread_finds_the_same_codes() -> None:
    x = images(4, 6, 21, 30)
    assert_equal(chain(Conv(6, 6, window(3), FOUND, None, RELU)), x, x[:1], x[:0], threads=2)


def test_codes_of_what_is_not_a_number_are_found() -> None:
    x = images(2, 6, 14, 15)
    x[0, :, 1, 3] = np.nan
    assert_equal(chain(Conv(6, 9, window(1), FOUND, None)), x)


def gates(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """Codes times what an activation makes of them, times the mean of their channel; what is rounded in between."""

    def added(op: ActivateOp | MulOp | Pool2dOp) -> SSAValue:
        block.add_op(op)
        return op.results[0]

    value = Conv(6, 5, WindowAttr((1, 1)), output=X).emit(block, arguments[0])
    gate = added(ActivateOp(added(ActivateOp(value, ActivationAttr("sigmoid"))), GATE.rounding))
    other = added(ActivateOp(added(ActivateOp(value, SILU)), Y.rounding))
    gated = added(ActivateOp(added(MulOp(gate, value)), Y.rounding))
    mean = added(ActivateOp(added(Pool2dOp(gated, "average", WindowAttr((9, 11)))), GATE.rounding))
    return [added(ActivateOp(added(MulOp(gated, mean)), Y.rounding)), other]


@best_form_first
def test_gates_of_codes_are_looked_up(target: CpuTarget) -> None:
    assert_equal(gates, images(2, 6, 9, 11), target=target)


def short_gates(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """Codes times those that an activation of few instructions makes of them."""
    value = Conv(6, 5, WindowAttr((1, 1)), output=X).emit(block, arguments[0])
    block.add_op(gate := ActivateOp(value, ActivationAttr("hard_sigmoid", (0.2, 0.5))))
    block.add_op(rounded := ActivateOp(gate.result, GATE.rounding))
    block.add_op(gated := MulOp(rounded.result, value))
    block.add_op(made := ActivateOp(gated.result, Y.rounding))
    return [made.result]


@best_form_first
def test_gates_of_few_instructions_are_multiplied(target: CpuTarget) -> None:
    assert_equal(short_gates, images(2, 6, 9, 11), target=target)
