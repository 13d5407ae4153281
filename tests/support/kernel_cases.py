"""Single layers that a family computes on a target, and float64 and onnxruntime as their judges."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.families import FAMILIES
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.sparse.csr import CscMatrix
from redpebble.verification.oracle import Oracle
from tests.support.lowering_modules import Floats, native, tiled

AnyFloats = NDArray[np.float32] | NDArray[np.float64]

Mask = np.ndarray[tuple[int, int], np.dtype[np.bool_]]

PATTERNS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Mask]] = {
    "uniform": lambda rng, shape: rng.random(shape) < 0.15,
    "thin": lambda rng, shape: rng.random(shape) < 0.02,
    "full": lambda rng, shape: rng.random(shape) < 2,
    "all zero": lambda rng, shape: rng.random(shape) > 2,
    "skewed outputs": lambda rng, shape: rng.random(shape) < rng.random(shape[1]) ** 4,
    "skewed inputs": lambda rng, shape: rng.random(shape) < rng.random((shape[0], 1)) ** 4,
    "empty rows and columns": lambda rng, shape: (
        (rng.random(shape) < 0.3) & (rng.random(shape[1]) < 0.5) & (rng.random((shape[0], 1)) < 0.5)
    ),
    "one full row": lambda rng, shape: (rng.random(shape) < 0.03) | (np.arange(shape[1]) == shape[1] // 2),
    "blocks": lambda rng, shape: np.repeat(
        np.repeat(rng.random((-(-shape[0] // 8), -(-shape[1] // 4))) < 0.2, 8, axis=0), 4, axis=1
    )[: shape[0], : shape[1]],
    "banded": lambda rng, shape: (
        abs(np.arange(shape[0])[:, None] * shape[1] - np.arange(shape[1]) * shape[0]) <= 3 * max(shape)
    ),
}


class Case(NamedTuple):
    """A layer and what runs it."""

    family: str
    target: CpuTarget
    shape: tuple[int, int]
    pattern: str
    batch: int
    seed: int

    @property
    def widths(self) -> tuple[int, ...]:
        return (1, 8, 32) if 8 in FAMILIES[self.family].widths else (1,)

    def weight(self) -> Floats:
        rng = np.random.default_rng(self.seed)
        values = rng.standard_normal(self.shape).astype(np.float32)
        return np.where(PATTERNS[self.pattern](rng, self.shape), values, np.float32(0))


LAYER = """<ir_version: 8, opset_import: ["" : 17]>
layer (float[m, k] x, float[k, n] w, float[n] b) => (float[m, n] y) {
  s = Gemm(x, w, b)
  y = LeakyRelu <alpha = 0.5> (s)
}"""


def module_of(case: Case, weight: Floats, bias: Floats) -> ModuleOp:
    """The layer as a module, `x0` its input."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        dense = case.family.startswith("dense")
        constants: list[Operation] = [ConstantOp(weight) if dense else SparseConstantOp(CscMatrix.from_dense(weight))]
        constants.append(ConstantOp(bias))
        values = [op.results[0] for op in constants]
        linear = LinearOp(arguments[0], *values, activation=ActivationAttr("leaky_relu", (0.5,)))
        linear.kernel = KernelAttr({1: case.family}, "by the test")
        block.add_ops([*constants, linear])
        return [linear.result]

    return tiled([f32_tensor((DYNAMIC, weight.shape[0]))], body, case.widths)


def run(case: Case, weight: Floats, bias: Floats, x: Floats) -> Floats:
    """What our code makes of the layer."""
    (result,) = native(module_of(case, weight, bias), case.target).run(None, {"x0": x})
    return result


def check(case: Case, oracle: Oracle) -> None:
    """Hold a layer to float64 and to an oracle of `LAYER`, up to the rounding of its products and sums in any order."""
    rng, weight = np.random.default_rng(case.seed + 1), case.weight()
    bias = rng.standard_normal(case.shape[1]).astype(np.float32)
    x = rng.standard_normal((case.batch, case.shape[0])).astype(np.float32)
    result = run(case, weight, bias, x)
    sums = x.astype(np.float64) @ weight + bias
    rounding = rounding_of(x, weight, bias)
    assert np.all(np.abs(result - np.where(sums < 0, 0.5 * sums, sums)) <= rounding)
    if case.batch > 0:
        (expected,) = oracle.run({"x": x, "w": weight, "b": bias})
        assert np.all(np.abs(result - expected) <= 2 * rounding)


def rounding_of(x: AnyFloats, weight: Floats, bias: Floats) -> AnyFloats:
    """What float32 sums of products may be off by; `narrow_blocks` and `strips` take a connection in parts."""
    return (len(weight) + 12) * 2.0**-24 * (np.abs(x).astype(np.float64) @ np.abs(weight) + np.abs(bias) + 1)
