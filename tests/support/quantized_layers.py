"""Random quantized layers in IR, what they compute in integers of numpy, and the targets whose code is compared."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr, activate
from redpebble.dialect.attributes.codes import CodesAttr, code_tensor
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ConvertOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.quantized_layers import QuantizedLayer
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.byte_times import LOOKUP, WINDOWS
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.passes.tiles.form_tiles import FormTiles
from redpebble.runtime.jit import missing_features
from redpebble.sparse.csr import CscMatrix
from tests.support.lowering_modules import BYTE_TARGETS, HERE, TARGETS, Floats, function, native

Integers = NDArray[np.int64]

RELU, TANH, GELU = ActivationAttr("relu"), ActivationAttr("tanh"), ActivationAttr("gelu")

CODES = [CodesAttr("u8", 0.02, 128), CodesAttr("s8", 0.01, -5), CodesAttr("u8", 0.03, 0)]

FORMS = TARGETS | BYTE_TARGETS
"""Targets by name, of which each multiplies codes by other instructions."""

_BEST_FORM = [next(iter(HERE)), *(name for name, one in BYTE_TARGETS.items() if not missing_features(one))][-1]


def _form(name: str, *marks: pytest.MarkDecorator) -> ParameterSet:
    absent = pytest.mark.skipif(bool(missing_features(FORMS[name])), reason="not this host's")
    return pytest.param(FORMS[name], id=name, marks=[absent, *marks])


each_form = pytest.mark.parametrize("target", [_form(name) for name in FORMS])

best_form_first = pytest.mark.parametrize(
    "target", [_form(name, *([] if name == _BEST_FORM else [pytest.mark.slow])) for name in FORMS]
)
"""For what stands around the products of codes, whose own tests hold each form."""


@dataclass(frozen=True)
class Layers:
    """Random layers between `sizes` neurons."""

    sizes: Sequence[int]
    codes: Sequence[CodesAttr]
    activation: ActivationAttr | None = None
    density: float = 0.2
    greatest: int = 255
    windows: bool = False
    """Whether look-ups go by windows from 8 rows on."""
    quads: str = ""
    blocks: int = 2
    sparse: bool = False
    """Whether all weights are stored sparse, not only every other one."""
    of_bytes: bool = False
    """Whether they read and yield codes."""
    weights: list[Integers] = field(default_factory=list[Integers])
    biases: list[Integers] = field(default_factory=list[Integers])
    multipliers: list[Floats] = field(default_factory=list[Floats])

    def __post_init__(self) -> None:
        rng = np.random.default_rng((len(self.sizes), *self.sizes))
        for index, (inputs, outputs) in enumerate(pairwise(self.sizes)):
            weight = rng.integers(-self.greatest, self.greatest + 1, (inputs, outputs))
            weight *= rng.random((inputs, outputs)) < self.density
            weight[:, outputs // 2] = 0
            self.weights.append(weight)
            self.biases.append(rng.integers(-1000, 1000, outputs))
            scale = self.codes[index].scale / 64
            self.multipliers.append((rng.uniform(0.5, 2.0, outputs) * scale).astype(np.float32))

    def emit(self, block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        layers: list[QuantizedLayer] = []
        for index, arrays in enumerate(zip(self.weights, self.biases, self.multipliers, strict=True)):
            weight, bias, multiplier = (array.astype(np.float32) for array in arrays)
            constants = [
                SparseConstantOp(CscMatrix.from_dense(weight)) if self.sparse or index % 2 == 0 else ConstantOp(weight),
                ConstantOp(bias),
                ConstantOp(multiplier),
            ]
            block.add_ops(constants)
            w, b, m = (constant.results[0] for constant in constants)
            layers.append(QuantizedLayer(f"fc{index}", w, b, m, self.codes[index], self.activation))
        choices = {1: LOOKUP} | ({8: WINDOWS} if self.windows else {}) | ({33: self.quads} if self.quads else {})
        blocks = {self.quads: self.blocks} if self.quads else {}
        kernel = KernelAttr(choices, "", blocks=blocks) if len(choices) > 1 else None
        ops: list[LinearOp | ConvertOp] = [] if self.of_bytes else [ConvertOp(arguments[0], self.codes[0])]
        for layer, following in zip(layers, [*self.codes[1:], None], strict=False):
            linear = LinearOp.of_codes(ops[-1].result if ops else arguments[0], layer, following)
            linear.kernel = kernel
            ops.append(linear)
        if len(self.codes) > len(layers) and not self.of_bytes:
            ops.append(ConvertOp(ops[-1].result))
        block.add_ops(ops)
        return ops[-1].results

    def function(self) -> ModuleOp:
        """Return the layers as the function of a module."""
        shape = (DYNAMIC, self.sizes[0])
        return function([code_tensor(self.codes[0], shape) if self.of_bytes else f32_tensor(shape)], self.emit)

    def module(self) -> ModuleOp:
        """Return the layers in a tile of the function of a module."""
        module = self.function()
        FormTiles().apply(Context(), module)
        return module

    def run(self, x: Floats, target: CpuTarget, threads: int = 1) -> Floats:
        return native(self.module(), target, threads).run(None, {"x0": x})[0]

    def interpreted(self, x: Floats) -> Floats:
        return np.asarray(interpret(self.module(), {"x0": x})[0], dtype=np.float32)

    def expected(self, x: Floats) -> Floats:
        """Return what the layers compute, in integers of 64 bits and floats of 32."""
        return self._results(_coded(x / np.float32(self.codes[0].scale), self.codes[0]))[1]

    def expected_codes(self, codes: NDArray[np.integer]) -> Integers:
        """Return the codes that the layers yield for those of their inputs."""
        return self._results(codes.astype(np.int64))[0]

    def _results(self, c: Integers) -> tuple[Integers, Floats]:
        """Return the codes of the results, those of the last hidden ones where results have none, and their values."""
        y = np.zeros(0, np.float32)
        for index, weight in enumerate(self.weights):
            total = (c - self.codes[index].zero) @ weight + self.biases[index]
            sums, multiplier = total.astype(np.int32).astype(np.float32), self.multipliers[index]
            after = self.codes[index + 1] if index + 1 < len(self.codes) else None
            if after is None:
                return c, _activated(self.activation, sums * multiplier)
            if self.activation in (None, RELU):
                c = _coded(sums * (multiplier / np.float32(after.scale)), after)
                c = c if self.activation is None else np.maximum(c, after.zero)
            else:
                c = _coded(_activated(self.activation, sums * multiplier) / np.float32(after.scale), after)
            y = (c - after.zero).astype(np.float32) * np.float32(after.scale)
        return c, y


def _coded(multiples: NDArray[np.floating], codes: CodesAttr) -> Integers:
    return np.clip(np.rint(multiples) + codes.zero, codes.least, codes.greatest).astype(np.int64)


def _activated(activation: ActivationAttr | None, values: Floats) -> Floats:
    return values if activation is None else np.asarray(activate(activation, values), dtype=np.float32)


def inputs(rows: int, features: int) -> Floats:
    return np.random.default_rng((rows, features)).standard_normal((rows, features), dtype=np.float32)
