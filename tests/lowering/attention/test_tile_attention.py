"""Attention of results of layers on codes, whose products are those of tiles where a CPU has such."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.ops.attention import AttentionOp, Heads, Weighting
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ConvertOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.quantized_layers import QuantizedLayer
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.lowering.attention.form import AttentionForm
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.passes.tiles.form_tiles import FormTiles
from redpebble.runtime.jit import host_target
from redpebble.sparse.csr import CscMatrix
from tests.lowering.attention.test_attention import Sizes, expected
from tests.support.lowering_modules import Floats, function, native

FEATURES = 24
CODES = CodesAttr("u8", 0.02, 128)
MULTIPLIER = 2.0**-13


def weights(sizes: Sizes) -> list[Floats]:
    heads, key_heads, key_size, value_size = sizes
    rng = np.random.default_rng(sizes)
    outputs = (heads * key_size, key_heads * key_size, key_heads * value_size)
    return [
        (rng.integers(-127, 128, (FEATURES, n)) * (rng.random((FEATURES, n)) < 0.3)).astype(np.float32) for n in outputs
    ]


@pytest.mark.parametrize("without", ["", "amx-bf16"])
@pytest.mark.parametrize(
    ("sizes", "weighting", "masked"),
    [
        ((2, 2, 32, 32), Weighting(0.2), True),
        ((3, 1, 64, 48), Weighting(0.2, causal=True), False),
        ((1, 1, 96, 128), Weighting(0.2, nan_as_zero=True), True),
    ],
)
def test_results_are_those_of_double_precision(sizes: Sizes, weighting: Weighting, masked: bool, without: str) -> None:
    matrices, (heads, key_heads, *_) = weights(sizes), sizes

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        x, *mask = arguments
        results: list[SSAValue] = []
        for index, matrix in enumerate(matrices):
            outputs = int(matrix.shape[1])
            constants = [
                SparseConstantOp(CscMatrix.from_dense(matrix)),
                ConstantOp(np.zeros(outputs, dtype=np.float32)),
                ConstantOp(np.full(outputs, MULTIPLIER, dtype=np.float32)),
            ]
            w, b, m = (constant.results[0] for constant in constants)
            rounding = ConvertOp(x, CODES)
            layer = LinearOp.of_codes(rounding.result, QuantizedLayer(f"fc{index}", w, b, m, CODES, None))
            block.add_ops([*constants, rounding, layer])
            results.append(layer.result)
        q, k, v = results
        attention = AttentionOp((q, k, v), mask[0] if mask else None, Heads(heads, key_heads), weighting)
        block.add_op(attention)
        return attention.results

    types = [f32_tensor((DYNAMIC, DYNAMIC, FEATURES))]
    module = function([*types, *([f32_tensor((DYNAMIC, 1, DYNAMIC, DYNAMIC))] if masked else [])], body)
    FormTiles().apply(Context(), module)
    forms = [AttentionForm.of(op) for op in module.walk() if isinstance(op, AttentionOp)]
    assert [form.is_rounded for form in forms] == [True]
    net = native(module, _host(without), 1)
    rng = np.random.default_rng(1)
    for count in (1, 7, 33, 130, 200):
        x = rng.standard_normal((2, count, FEATURES), dtype=np.float32)
        steps = np.clip(np.rint(x / np.float32(CODES.scale)), -128, 127)
        arrays = [(steps @ matrix * np.float32(MULTIPLIER)).astype(np.float32) for matrix in matrices]
        mask = rng.standard_normal((2, 1, count, count), dtype=np.float32)
        mask[rng.random(mask.shape) < 0.3] = -np.inf
        mask[..., 0] = 0.0
        feeds = {"x0": x, "x1": mask} if masked else {"x0": x}
        wanted = expected(sizes, weighting, arrays, mask if masked else None)
        np.testing.assert_allclose(net.run(None, feeds)[0], wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_attention_between_layers_of_bfloat16_is_by_tiles() -> None:
    sizes, weighting = (2, 2, 32, 32), Weighting(0.2)
    matrices = [(matrix / 256).astype(np.float32) for matrix in weights(sizes)]

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        results: list[SSAValue] = []
        for matrix in matrices:
            constants = [
                SparseConstantOp(CscMatrix.from_dense(matrix)),
                ConstantOp(np.zeros(int(matrix.shape[1]), dtype=np.float32)),
            ]
            w, b = (constant.results[0] for constant in constants)
            layer = LinearOp(arguments[0], w, b)
            layer.precision, layer.kernel = StringAttr("bf16"), KernelAttr({1: "narrow_blocks"}, "by the test")
            block.add_ops([*constants, layer])
            results.append(layer.result)
        q, k, v = results
        attention = AttentionOp((q, k, v), None, Heads(2, 2), weighting)
        block.add_op(attention)
        return attention.results

    module = function([f32_tensor((DYNAMIC, DYNAMIC, FEATURES))], body)
    FormTiles().apply(Context(), module)
    assert [AttentionForm.of(op).is_rounded for op in module.walk() if isinstance(op, AttentionOp)] == [True]
    x = np.random.default_rng(1).standard_normal((2, 33, FEATURES), dtype=np.float32)
    wanted = expected(sizes, weighting, [(x @ matrix).astype(np.float32) for matrix in matrices], None)
    (found,) = native(module, host_target(), 1).run(None, {"x0": x})
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def _host(without: str) -> CpuTarget:
    target = host_target()
    return replace(target, features=target.features.replace(f"+{without}", f"-{without}")) if without else target
