from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import InterpretationError

from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.tensors import compatible, shape_of
from tests.dialect.onnx_oracle import run_operator
from tests.dialect.pebble_text import parse
from tests.dialect.random_modules import Case, cases

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 4)).astype(np.float32)
SCALE, BIAS, MEAN = (RNG.normal(size=4).astype(np.float32) for _ in range(3))
VARIANCE = RNG.uniform(0.5, 2, size=4).astype(np.float32)
WITH_SPECIAL = np.array(
    [[1, 2, 3, 4], [np.nan, 2, 3, 4], [np.inf, 2, 3, 4], [-np.inf, 2, 3, -np.inf]], dtype=np.float32
)
ROW, VEC = "tensor<?x4xf32>", "tensor<4xf32>"


def run(body: str, arguments: Sequence[NDArray[np.floating]], result: str = ROW) -> NDArray[np.floating]:
    """The result %y of a function whose arguments are called %a, %b, and so on, with an unknown number of rows."""
    names = "abcdefg"[: len(arguments)]
    shapes = [array.shape if array.ndim == 1 else ("?", *array.shape[1:]) for array in arguments]
    types = [f"tensor<{'x'.join(map(str, shape))}xf32>" for shape in shapes]
    signature = ", ".join(f"%{name}: {kind}" for name, kind in zip(names, types, strict=True))
    module = parse(f"func.func @main({signature}) -> {result} {{\n{body}\nfunc.return %y : {result}\n}}")
    (array,) = interpret(module, dict(zip(names, arguments, strict=True)))
    return array


@pytest.mark.parametrize(
    ("body", "operator", "arrays", "attributes"),
    [
        (f"%y = pebble.softmax %a : ({ROW}) -> {ROW}", "Softmax", [X], {"axis": -1}),
        (f"%y = pebble.log_softmax %a : ({ROW}) -> {ROW}", "LogSoftmax", [X], {"axis": -1}),
        (f"%y = pebble.softmax %a : ({ROW}) -> {ROW}", "Softmax", [WITH_SPECIAL], {"axis": -1}),
        (f"%y = pebble.log_softmax %a : ({ROW}) -> {ROW}", "LogSoftmax", [WITH_SPECIAL], {"axis": -1}),
        (
            f"%y = pebble.layer_norm %a scale %b bias %c epsilon 1.0e-03 : ({ROW}, {VEC}, {VEC}) -> {ROW}",
            "LayerNormalization",
            [X, SCALE, BIAS],
            {"epsilon": 1e-3},
        ),
        (
            f"%y = pebble.layer_norm %a scale %b epsilon 1.0e-03 : ({ROW}, {VEC}) -> {ROW}",
            "LayerNormalization",
            [WITH_SPECIAL, SCALE],
            {"epsilon": 1e-3},
        ),
        (
            f"%y = pebble.rms_norm %a scale %b epsilon 1.0e-03 : ({ROW}, {VEC}) -> {ROW}",
            "RMSNormalization",
            [X, SCALE],
            {"epsilon": 1e-3},
        ),
        (
            f"%y = pebble.batch_norm %a scale %b bias %c mean %d variance %e epsilon 1.0e-03 : "
            f"({ROW}, {VEC}, {VEC}, {VEC}, {VEC}) -> {ROW}",
            "BatchNormalization",
            [X, SCALE, BIAS, MEAN, VARIANCE],
            {"epsilon": 1e-3},
        ),
        (f"%y = pebble.add %a, %b : ({ROW}, {VEC}) -> {ROW}", "Add", [X, SCALE], {}),
        (f"%y = pebble.sub %a, %b : ({ROW}, {VEC}) -> {ROW}", "Sub", [X, SCALE], {}),
        (f"%y = pebble.mul %a, %b : ({ROW}, {VEC}) -> {ROW}", "Mul", [X, SCALE], {}),
        (f"%y = pebble.div %a, %b : ({ROW}, {VEC}) -> {ROW}", "Div", [X, SCALE], {}),
        (f"%y = pebble.prelu %a, %b : ({ROW}, {VEC}) -> {ROW}", "PRelu", [WITH_SPECIAL, SCALE], {}),
        (f"%y = pebble.concat %a, %b axis 0 : ({ROW}, {ROW}) -> {ROW}", "Concat", [X, X], {"axis": 0}),
    ],
)
def test_an_op_is_the_onnx_operator(
    body: str, operator: str, arrays: list[NDArray[np.float32]], attributes: dict[str, float]
) -> None:
    feeds = dict(zip("abcdefg", arrays, strict=False))
    expected = run_operator(operator, feeds, attributes)
    np.testing.assert_allclose(run(body, arrays), expected, rtol=1e-5, atol=1e-6)
    wide = run(body, [array.astype(np.float64) for array in arrays])
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, expected, rtol=1e-5, atol=1e-6)


def test_a_linear_layer_is_gemm_and_relu() -> None:
    weight = RNG.normal(size=(4, 2)).astype(np.float32)
    pair, wide = "tensor<2xf32>", "tensor<?x2xf32>"
    body = f"""
      %w = pebble.constant dense<{weight.tolist()}> : tensor<4x2xf32>
      %y = pebble.linear %a, %w bias %b activation <relu> : ({ROW}, tensor<4x2xf32>, {pair}) -> {wide}"""
    expected = run_operator("Relu", {"x": run_operator("Gemm", {"x": X, "w": weight, "b": SCALE[:2]})})
    np.testing.assert_allclose(run(body, [X, SCALE[:2]], wide), expected, rtol=1e-5, atol=1e-6)


def test_a_sparse_weight_multiplies_its_zeros_as_well() -> None:
    body = f"""
      %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 3]> : tensor<2xi64>
        values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<4x2xf32, #pebble.sparsity<nonzeros = 2>>
      %y = pebble.linear %a, %w : ({ROW}, tensor<4x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>"""
    weight = np.array([[1, 0], [0, 0], [0, 0], [0, 2]], dtype=np.float32)
    expected = run_operator("MatMul", {"x": WITH_SPECIAL, "w": weight})
    np.testing.assert_array_equal(run(body, [WITH_SPECIAL], "tensor<?x2xf32>"), expected)


def test_movement_is_numpys() -> None:
    x = RNG.normal(size=(5, 2, 6))
    kind = "tensor<?x2x6xf32>"
    flat = run(f"%y = pebble.reshape %a to <[d0, _]> : ({kind}) -> tensor<?x12xf32>", [x], "tensor<?x12xf32>")
    np.testing.assert_array_equal(flat, x.reshape(5, 12))
    transposed = run(
        f"%y = pebble.transpose %a axes [2, 0, 1] : ({kind}) -> tensor<6x?x2xf32>", [x], "tensor<6x?x2xf32>"
    )
    np.testing.assert_array_equal(transposed, x.transpose(2, 0, 1))
    parts = f"%x, %y = pebble.split %a axis 2 : ({kind}) -> (tensor<?x2x4xf32>, tensor<?x2x2xf32>)"
    np.testing.assert_array_equal(run(parts, [x], "tensor<?x2x2xf32>"), x[:, :, 4:])
    mean = run(f"%y = pebble.reduce_mean %a : ({kind}) -> tensor<?x2x1xf32>", [x], "tensor<?x2x1xf32>")
    np.testing.assert_array_equal(mean, x.mean(axis=2, keepdims=True))


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_tile_computes_what_its_body_computes_row_by_row(rows: int) -> None:
    x, z = RNG.normal(size=(rows, 3, 4)), RNG.normal(size=(rows, 3, 2))
    body = """
      %y = pebble.tile %a, %b rows_of [1] schedule <widths = [16]>
          : (tensor<?x3x4xf32>, tensor<?x3x2xf32>) -> tensor<?x3x6xf32> {
      ^bb0(%p: tensor<?x4xf32>, %q: tensor<?x2xf32>):
        %r = pebble.softmax %p : (tensor<?x4xf32>) -> tensor<?x4xf32>
        %s = pebble.concat %r, %q axis 1 : (tensor<?x4xf32>, tensor<?x2xf32>) -> tensor<?x6xf32>
        pebble.yield %s : tensor<?x6xf32>
      }"""
    untiled = """
      %r = pebble.softmax %a : (tensor<?x3x4xf32>) -> tensor<?x3x4xf32>
      %y = pebble.concat %r, %b axis 2 : (tensor<?x3x4xf32>, tensor<?x3x2xf32>) -> tensor<?x3x6xf32>"""
    np.testing.assert_array_equal(run(body, [x, z], "tensor<?x3x6xf32>"), run(untiled, [x, z], "tensor<?x3x6xf32>"))


@settings(deadline=None, max_examples=30)
@given(cases())
def test_results_have_the_shape_their_types_promise(case: Case) -> None:
    last = list(case.module.walk())[-1]
    for value, array in zip(last.operands, interpret(case.module, case.feeds), strict=True):
        assert compatible(array.shape, shape_of(value))
        assert array.dtype == np.float64


def main_with(names: Sequence[str], body: str = f"func.return %0 : {ROW}") -> ModuleOp:
    """The function whose arguments %0, %1, and so on have these names."""
    arguments = [f'%{index}: {ROW} {{pebble.name = "{name}"}}' for index, name in enumerate(names)]
    return parse(f"func.func @main({', '.join(arguments)}) -> {ROW} {{\n{body}\n}}")


def test_feeds_are_found_by_name() -> None:
    module = main_with(["x", "z"], f"%2 = pebble.sub %0, %1 : ({ROW}, {ROW}) -> {ROW}\nfunc.return %2 : {ROW}")
    np.testing.assert_array_equal(interpret(module, {"z": X, "x": 3 * X})[0], 3 * X - X)


def test_values_of_other_types_pass_through() -> None:
    kind, ids = '!pebble.value<"tensor(int64)">', np.arange(3)
    module = parse(f"func.func @main(%0: {kind}) -> {kind} {{\nfunc.return %0 : {kind}\n}}")
    assert interpret(module, {"ids": ids})[0] is ids


def test_a_missing_feed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^expected values for x, z, got x$"):
        interpret(main_with(["x", "z"]), {"x": X})


def test_a_feed_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^x: expected shape \?x4, got 4x5$"):
        interpret(main_with(["x"]), {"x": X.T})


def test_a_foreign_op_is_refused_by_name() -> None:
    foreign = 'pebble.foreign "ai.onnx.ml::Scaler" at 3 reads %0 as ["x"] {pebble.node = "scale"}'
    module = main_with(["x"], f"%1 = {foreign} : ({ROW}) -> {ROW}\nfunc.return %1 : {ROW}")
    message = r"^node 'scale': expected an op of pebble, got operator ai.onnx.ml::Scaler, which is foreign$"
    with pytest.raises(InterpretationError, match=message):
        interpret(module, {"x": X})


def test_a_module_without_main_is_refused() -> None:
    with pytest.raises(InterpretationError, match=r"^the module has no function main$"):
        interpret(parse("func.func @other() {\nfunc.return\n}"), {})
