"""Small random modules: linear layers with pruned weights, and between them everything that passes look at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, PreluOp, SubOp
from redpebble.dialect.ops.layers import (
    BatchNormOp,
    LayerNormOp,
    LinearOp,
    LogSoftmaxOp,
    ReduceMeanOp,
    RmsNormOp,
    SoftmaxOp,
)
from redpebble.dialect.ops.movement import INFERRED, ConcatOp, ReshapeOp, SplitOp, TargetShapeAttr, TransposeOp, copied
from redpebble.dialect.symbolic_sizes import DIMS, NAME
from redpebble.dialect.tensors import DYNAMIC, f32_tensor, shape_of
from redpebble.sparse.csr import CscMatrix

BATCHES = (0, 1, 7)
INNER = 3
"""The size of the middle axis of values of rank 3."""

ACTIVATIONS = (
    ActivationAttr("relu"),
    ActivationAttr("tanh"),
    ActivationAttr("gelu"),
    ActivationAttr("sigmoid"),
    ActivationAttr("clip", (-1.0, 2.0)),
    ActivationAttr("leaky_relu", (0.1,)),
)


@dataclass
class NetworkBuilder:
    """Appends ops to a block; every choice comes from one generator, so that a seed is a network."""

    rng: np.random.Generator
    block: Block
    nonfinite: bool = False
    """Put NaN or an infinity into some constants."""
    values: list[SSAValue] = field(default_factory=list[SSAValue])
    """What later ops may read, besides the last one."""

    def add(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    def constant(self, *shape: int) -> SSAValue:
        # few different values, so that neurons are equal now and then; never tiny, so that quotients stay small
        return self.add(ConstantOp(self.spoiled(self.rng.choice([-1.5, -1.0, 0.5, 1.0, 2.0], shape))))

    def spoiled(self, array: NDArray[np.float64]) -> NDArray[np.float32]:
        if self.nonfinite and array.size and self.rng.random() < 0.3:
            array.flat[int(self.rng.integers(0, array.size))] = self.rng.choice([np.nan, np.inf, -np.inf])
        return array.astype(np.float32)

    def weight(self, inputs: int, outputs: int) -> SSAValue:
        matrix = self.rng.choice([-1.0, 0.5, 1.0], (inputs, outputs))
        matrix *= self.rng.random((inputs, outputs)) < self.rng.choice([0.0, 0.3, 0.6, 1.0])
        matrix[self.rng.random(inputs) < 0.2] = 0.0
        matrix[:, self.rng.random(outputs) < 0.2] = 0.0
        if outputs > 1 and self.rng.random() < 0.5:
            matrix[:, -1] = matrix[:, 0]
        weight = self.spoiled(matrix)
        sparse = self.rng.random() < 0.5
        return self.add(SparseConstantOp(CscMatrix.from_dense(weight)) if sparse else ConstantOp(weight))

    def per_feature(self, features: int, rank: int) -> SSAValue:
        """A constant with an entry for each feature, or one for all, with up to `rank` axes."""
        leading = (1,) * int(self.rng.integers(0, rank))
        if self.rng.random() < 0.3:
            return self.constant(*leading, 1) if self.rng.random() < 0.5 else self.constant()
        return self.constant(*leading, features)


T = TypeVar("T")
Layer = Callable[[NetworkBuilder, SSAValue], SSAValue]


def _linear(build: NetworkBuilder, x: SSAValue) -> SSAValue:
    outputs = int(build.rng.integers(1, 6))
    weight = build.weight(shape_of(x)[-1], outputs)
    bias = build.constant(outputs) if build.rng.random() < 0.5 else None
    activation = _choice(build, ACTIVATIONS) if build.rng.random() < 0.3 else None
    return build.add(LinearOp(x, weight, bias, activation))


def _activate(build: NetworkBuilder, x: SSAValue) -> SSAValue:
    return build.add(ActivateOp(x, _choice(build, ACTIVATIONS)))


def _featurewise(build: NetworkBuilder, x: SSAValue) -> SSAValue:
    shape = shape_of(x)
    constant = build.per_feature(shape[-1], len(shape))
    op = _choice(build, (AddOp, SubOp, MulOp, DivOp, PreluOp))
    swapped = op is not DivOp and op is not PreluOp and build.rng.random() < 0.5
    return build.add(op(constant, x) if swapped else op(x, constant))


def _residual(build: NetworkBuilder, x: SSAValue) -> SSAValue:
    others = [value for value in build.values if value.type == x.type]
    return build.add(AddOp(x, _choice(build, others)))


def _norm(build: NetworkBuilder, x: SSAValue) -> SSAValue:
    features = shape_of(x)[-1]
    kind = build.rng.integers(0, 3)
    if kind == 0 and len(shape_of(x)) == 2:
        variance = build.add(ConstantOp(build.rng.random(features).astype(np.float32) + 0.5))
        scale, bias, mean = build.constant(features), build.constant(features), build.constant(features)
        return build.add(BatchNormOp(x, (scale, bias, mean, variance), 1e-5))
    if kind == 1:
        return build.add(RmsNormOp(x, build.constant(features), 1e-2))
    return build.add(LayerNormOp(x, build.constant(features), build.constant(features), 1e-2))


def _softmax(build: NetworkBuilder, x: SSAValue) -> SSAValue:
    return build.add(_choice(build, (SoftmaxOp, LogSoftmaxOp))(x))


def _mean(build: NetworkBuilder, x: SSAValue) -> SSAValue:
    return build.add(SubOp(x, build.add(ReduceMeanOp(x))))


def _concat(build: NetworkBuilder, x: SSAValue) -> SSAValue:
    leading = shape_of(x)[:-1]
    others = [value for value in build.values if shape_of(value)[:-1] == leading]
    return build.add(ConcatOp([x, _choice(build, others)], len(leading)))


def _split(build: NetworkBuilder, x: SSAValue) -> SSAValue:
    shape = shape_of(x)
    if shape[-1] < 2:
        return x
    op = SplitOp(x, len(shape) - 1, [1, shape[-1] - 1])
    build.add(op)
    build.values.append(op.parts[0])
    return op.parts[1]


def _reshape(build: NetworkBuilder, x: SSAValue) -> SSAValue:
    """[B, 3, K] -> [3 * B, K], and back."""
    shape = shape_of(x)
    if len(shape) == 3:
        return build.add(ReshapeOp(x, TargetShapeAttr([INFERRED, shape[-1]])))
    merged = len(shape_of(build.values[0])) == 3
    return build.add(ReshapeOp(x, TargetShapeAttr([INFERRED, INNER, shape[-1]]))) if merged else x


def _swap(build: NetworkBuilder, x: SSAValue) -> SSAValue:
    """Move things about outside of tiles: swap the axes of the rows, or take the features apart."""
    shape = shape_of(x)
    if len(shape) == 3 and shape[1] != DYNAMIC:
        once = build.add(TransposeOp(x, [1, 0, 2]))
        return build.add(TransposeOp(_linear(build, once), [1, 0, 2]))
    apart = build.add(ReshapeOp(x, TargetShapeAttr([copied(0), INFERRED, 1])))
    joined = build.add(ReshapeOp(_activate(build, apart), TargetShapeAttr([copied(0), shape[-1]])))
    return joined if len(shape) == 2 else x


LAYERS: tuple[Layer, ...] = (
    *(_linear,) * 5,
    *(_featurewise,) * 3,
    *(_activate,) * 2,
    _residual,
    _norm,
    _softmax,
    _mean,
    _concat,
    _split,
    _reshape,
    _swap,
)


def _choice(build: NetworkBuilder, options: Sequence[T]) -> T:
    return options[int(build.rng.integers(0, len(options)))]


def network(seed: int, *, nonfinite: bool = False) -> ModuleOp:
    """A module with one or two inputs [batch, K] or [batch, 3, K], up to ten layers and one or two results."""
    rng = np.random.default_rng(seed)
    middle = (INNER,) * int(rng.integers(0, 2))
    features = [int(size) for size in rng.integers(1, 6, int(rng.integers(1, 3)))]
    types = [f32_tensor((DYNAMIC, *middle, size)) for size in features]
    block = Block(arg_types=types)
    build = NetworkBuilder(rng, block, nonfinite, list(block.args))
    value: SSAValue = block.args[-1]
    for _ in range(int(rng.integers(1, 11))):
        value = _choice(build, LAYERS)(build, value)
        build.values.append(value)
    results = [value] if rng.random() < 0.7 else [value, _choice(build, build.values)]
    block.add_op(ReturnOp(*results))
    names = [
        DictionaryAttr(
            {
                NAME: StringAttr(f"x{index}"),
                DIMS: ArrayAttr([StringAttr(text) for text in ("batch", *map(str, middle), str(size))]),
            }
        )
        for index, size in enumerate(features)
    ]
    signature = (types, [result.type for result in results])
    module = ModuleOp([FuncOp("main", signature, Region(block), arg_attrs=ArrayAttr(names))])
    module.verify()
    return module


def feeds_for(module: ModuleOp, batch: int, seed: int) -> dict[str, NDArray[np.float64]]:
    """Random inputs for a batch size, in double precision, so that the interpreter computes in it, too."""
    rng = np.random.default_rng(seed)
    (function,) = [op for op in module.walk() if isinstance(op, FuncOp)]
    shapes = [shape_of(argument) for argument in function.args]
    return {
        f"x{index}": rng.standard_normal([batch if size == DYNAMIC else size for size in shape])
        for index, shape in enumerate(shapes)
    }


seeds = st.integers(0, 2**32 - 1)
