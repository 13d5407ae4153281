"""Native functions on feature-major blocks compute what the module says; messages carry rows as they are."""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from redpebble.distributed.native.block_layout import (
    PACK,
    PACK_ARITY,
    PACK_CODES,
    UNPACK,
    UNPACK_ARITY,
    UNPACK_CODES,
    block_bytes,
    buffer_bytes,
    flag_bytes,
    row_bytes,
)
from redpebble.distributed.native.feature_blocks import lower_blocks
from redpebble.kernels.byte_times import SCATTERED
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.passes.kernels.choose_kernels import ChooseKernels
from redpebble.passes.runner import context, run_passes
from redpebble.runtime.jit import MachineCode, emit_object, host_target, load_object
from redpebble.runtime.memory import address_of, aligned_bytes, aligned_copy, pointer_table
from tests.support.quantized_layers import CODES, FORMS, RELU, Layers, best_form_first, inputs

Floats = NDArray[np.float32]

MODULE = """
func.func @first(%x : tensor<?x3xf32> {pebble.name = "x"})
    -> (tensor<?x2xf32> {pebble.height = #builtin.int<5>}) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]]> : tensor<3x2xf32>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]>
      : (tensor<?x3xf32>) -> tensor<?x2xf32> {
  ^bb0(%tile : tensor<?x3xf32>):
    %h = pebble.linear %tile, %w activation <relu> : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
    pebble.yield %h : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}
func.func @second(
    %x : tensor<?x2xf32> {pebble.height = #builtin.int<5>},
    %y : tensor<?x5xf32> {pebble.height = #builtin.int<5>})
    -> (tensor<?x7xf32> {pebble.name = "y"},
        tensor<?x5xf32> {pebble.height = #builtin.int<5>}) {
  %z, %same = pebble.tile %x, %y rows_of [0, 0] schedule <widths = [64]>
      : (tensor<?x2xf32>, tensor<?x5xf32>) -> (tensor<?x7xf32>, tensor<?x5xf32>) {
  ^bb0(%a : tensor<?x2xf32>, %b : tensor<?x5xf32>):
    %c = pebble.concat %a, %b axis 1 : (tensor<?x2xf32>, tensor<?x5xf32>) -> tensor<?x7xf32>
    pebble.yield %c, %b : tensor<?x7xf32>, tensor<?x5xf32>
  }
  func.return %z, %same : tensor<?x7xf32>, tensor<?x5xf32>
}
"""

WIDTHS = (1, 8, 16, 64)


class Loaded(NamedTuple):
    code: MachineCode
    constants: list[NDArray[np.generic]]
    table: NDArray[np.uint64]
    scratch: NDArray[np.uint8]


@cache
def loaded(width: int) -> Loaded:
    module: ModuleOp = Parser(context(), MODULE).parse_module()
    run_passes(context(), module, (ChooseKernels(),))
    return loaded_module(module, host_target(), width)


def loaded_module(module: ModuleOp, target: CpuTarget, width: int) -> Loaded:
    program = lower_blocks(module, target, width)
    arities = {step.symbol: (4, 2) for step in program.steps}
    arities |= dict.fromkeys((PACK, PACK_CODES), PACK_ARITY) | dict.fromkeys((UNPACK, UNPACK_CODES), UNPACK_ARITY)
    code = load_object(emit_object(program.llvm_ir, program.target), arities)
    constants = [aligned_copy(array) for array in program.constants]
    return Loaded(code, constants, pointer_table(constants), aligned_bytes(program.scratch_bytes))


def call(native: Loaded, name: str, addresses: list[int], samples: int) -> None:
    buffers = np.array(addresses, dtype=np.uint64)
    pointers = (address_of(buffers), address_of(native.table), None, address_of(native.scratch))
    native.code.functions[name](*pointers, 0, samples)


def blocks_of(values: Floats, width: int, height: int) -> NDArray[np.uint8]:
    """A buffer that holds values [samples, features]; copies of the last sample fill the last block."""
    count = -(-len(values) // width)
    values = values[np.minimum(np.arange(count * width), len(values) - 1)]
    buffer = aligned_bytes(buffer_bytes(height, count, width))
    buffer[...] = 0
    rows = buffer[: count * block_bytes(height, width)].view(np.float32).reshape(count, -1)
    for sample, row in enumerate(values):
        rows[sample // width, : values.shape[1] * width].reshape(-1, width)[:, sample % width] = row
    return buffer


def values_of(buffer: NDArray[np.uint8], width: int, shape: tuple[int, int, int]) -> Floats:
    """The first features of a buffer, [samples, features]; the shape is (samples, features, height)."""
    samples, features, height = shape
    count = -(-samples // width)
    rows = buffer[: count * block_bytes(height, width)].view(np.float32).reshape(count, -1)
    transposed = rows[:, : features * width].reshape(count, features, width).transpose(0, 2, 1)
    return transposed.reshape(count * width, features)[:samples]


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("samples", [1, 7, 65])
def test_functions_compute_on_rows_of_larger_buffers(width: int, samples: int) -> None:
    native, rng = loaded(width), np.random.default_rng(samples)
    x, y = (rng.standard_normal((samples, features)).astype(np.float32) for features in (3, 5))
    hidden, other, same = (blocks_of(np.zeros((samples, 5), dtype=np.float32), width, 5) for _ in range(3))
    other = blocks_of(y, width, 5)
    call(native, "first", [address_of(x), address_of(hidden)], samples)
    weight = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]], dtype=np.float32)
    expected = np.maximum(x @ weight, 0.0)
    np.testing.assert_allclose(values_of(hidden, width, (samples, 2, 5)), expected, 1e-5, 1e-6)
    result = np.empty((samples, 7), dtype=np.float32)
    call(native, "second", [address_of(array) for array in (hidden, other, result, same)], samples)
    np.testing.assert_allclose(result, np.concatenate((expected, y), axis=1), 1e-5, 1e-6)
    np.testing.assert_array_equal(values_of(same, width, (samples, 5, 5)), y)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_go_through_a_message_and_rows_of_zeros_are_left_out(width: int) -> None:
    native, rng = loaded(width), np.random.default_rng(width)
    samples, features = 3 * width, 9
    values = rng.standard_normal((samples, features)).astype(np.float32)
    values[:, 4] = 0.0
    values[:width, 2] = 0.0
    values[:, 7] = np.nan
    rows = np.array([7, 4, 2, 0], dtype=np.int64)
    message = aligned_bytes(flag_bytes(len(rows), 3) + len(rows) * 3 * row_bytes(width))
    source, count = blocks_of(values, width, features), np.zeros(1, dtype=np.int64)
    pointers = (address_of(source), address_of(rows), address_of(message), address_of(count))
    native.code.functions[PACK](*pointers, len(rows), 3, block_bytes(features, width), 0)
    assert count[0] == 4 * 3 - 3 - 1
    target = blocks_of(np.full((samples, 6), 5.0, dtype=np.float32), width, 6)
    pointers = (address_of(message), address_of(target), address_of(count))
    native.code.functions[UNPACK](*pointers, len(rows), 3, block_bytes(6, width), 0, 1)
    assert count[0] == 4 * 3 - 3 - 1
    actual = values_of(target, width, (samples, 6, 6))
    np.testing.assert_array_equal(actual[:, 1:5], values[:, rows])
    assert np.all(actual[:, [0, 5]] == 5.0)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_codes_go_through_a_message_and_rows_of_the_code_of_0_are_left_out(width: int) -> None:
    native, zero, stride = loaded(width), 251, block_bytes(9, width, 1)
    source, count = aligned_bytes(3 * stride).reshape(3, -1), np.zeros(1, dtype=np.int64)
    source[...] = np.random.default_rng(width).integers(0, 250, source.shape)
    lines = source[:, : 9 * width].reshape(3, 9, width)
    lines[:, 4] = lines[0, 2] = zero
    lines[1, 7] = 0
    rows = np.array([7, 4, 2, 0], dtype=np.int64)
    message = aligned_bytes(flag_bytes(len(rows), 3) + len(rows) * 3 * row_bytes(width, 1))
    pointers = (address_of(source), address_of(rows), address_of(message), address_of(count))
    native.code.functions[PACK_CODES](*pointers, len(rows), 3, stride, zero)
    assert count[0] == 4 * 3 - 3 - 1
    target = aligned_bytes(3 * block_bytes(6, width, 1)).reshape(3, -1)
    target[...] = 5
    pointers = (address_of(message), address_of(target), address_of(count))
    native.code.functions[UNPACK_CODES](*pointers, len(rows), 3, block_bytes(6, width, 1), zero, 1)
    assert count[0] == 4 * 3 - 3 - 1
    actual = target[:, : 6 * width].reshape(3, 6, width)
    np.testing.assert_array_equal(actual[:, 1:5], lines[:, rows])
    assert np.all(target[:, 5 * width :] == 5)
    assert np.all(actual[:, 0] == 5)


@best_form_first
@pytest.mark.parametrize("width", [1, 8, 48])
def test_layers_on_codes_compute_in_blocks_of_any_width(target: CpuTarget, width: int) -> None:
    layers = Layers([37, 50, 19, 33], [*CODES, CODES[1]], RELU, windows=True, quads=SCATTERED)
    module = layers.module()
    native, x = loaded_module(module, target, width), inputs(width + 7, 37)
    y = np.empty((len(x), 33), dtype=np.float32)
    call(native, "main", [address_of(x), address_of(y)], len(x))
    np.testing.assert_array_equal(y, layers.expected(x))


@pytest.mark.slow
@pytest.mark.parametrize("target", FORMS.values(), ids=FORMS)
def test_layers_on_codes_have_code_for_every_target(target: CpuTarget) -> None:
    layers = Layers([37, 50, 19], CODES, RELU, windows=True, quads=SCATTERED)
    program = lower_blocks(layers.module(), target, 64)
    assert emit_object(program.llvm_ir, target)
