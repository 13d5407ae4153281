"""Modules of one tile, built op by op, and their native code for any target."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.codes import CodeTensor
from redpebble.dialect.attributes.depth_first_order import DepthFirstOrderAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.schedule import ScheduleAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.regions import YieldOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.ops.tile_chain import chain_of, weighted_graph_of
from redpebble.dialect.ops.tile_depth_first import DepthFirstAttr, LayerGroupAttr
from redpebble.dialect.symbolic_sizes import DIMS, NAME
from redpebble.dialect.tensors import DYNAMIC, F32Tensor, f32_tensor, shape_of
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.runtime.jit import emit_object, missing_features
from redpebble.runtime.network import Network
from redpebble.sparse.csr import CscMatrix
from redpebble.theory.depth_first.depth_first_order import Blocks, order_neurons, positioned_graph

Floats = NDArray[np.float32]
Body = Callable[[Block, Sequence[SSAValue]], Sequence[SSAValue]]

TARGETS = {"avx512": CpuTarget.avx512(), "avx2": CpuTarget.avx2(), "generic": CpuTarget.generic()}

BYTE_TARGETS = {"avxvnni": CpuTarget.avxvnni(), "avx512vnni": CpuTarget.avx512vnni(), "zen4": CpuTarget.zen4()}
"""Targets that multiply bytes."""

HERE = {name: target for name, target in TARGETS.items() if not missing_features(target)}
"""Targets that this machine can run, the best first."""


def _target(name: str, *marks: pytest.MarkDecorator) -> ParameterSet:
    return pytest.param(
        TARGETS[name], id=name, marks=[pytest.mark.skipif(name not in HERE, reason="not this host's"), *marks]
    )


each_target = pytest.mark.parametrize("target", [_target(name) for name in TARGETS])

best_target_first = pytest.mark.parametrize(
    "target", [_target(name, *([] if name == next(iter(HERE)) else [pytest.mark.slow])) for name in TARGETS]
)
"""For what differs between targets in the vectors' width alone, which other tests vary."""


def function(inputs: Sequence[F32Tensor | CodeTensor], body: Body, dims: Sequence[str] | None = None) -> ModuleOp:
    """A module whose `@main` takes tensors x0, x1, ... and returns what body does; dims are the names of their axes.

    None for d0, d1, ... by position.
    """
    block = Block(arg_types=inputs)
    results = body(block, block.args)
    block.add_op(ReturnOp(*results))
    types = [result.type for result in results]
    names = [
        DictionaryAttr(
            {
                NAME: StringAttr(f"x{index}"),
                DIMS: ArrayAttr(
                    [
                        StringAttr(f"d{axis}" if dims is None else dims[index][axis])
                        for axis in range(len(tensor.get_shape()))
                    ]
                ),
            }
        )
        for index, tensor in enumerate(inputs)
    ]
    module = ModuleOp([FuncOp("main", (list(inputs), types), Region(block), arg_attrs=ArrayAttr(names))])
    module.verify()
    return module


EVERY_WIDTH: Sequence[int] = (1, 8, 16, 32, 64)


def tiled(inputs: Sequence[F32Tensor], body: Body, widths: Sequence[int] = EVERY_WIDTH) -> ModuleOp:
    """A module of one tile over all inputs; `body` adds the tile's ops to its block, constants included."""

    def fill(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        region = TileOp.body_for(arguments)
        inner = region.block
        yielded = body(inner, inner.args)
        constants = [op for op in inner.ops if isinstance(op, ConstantOp | SparseConstantOp)]
        for constant in constants:
            constant.detach()
            block.add_op(constant)
        inner.add_op(YieldOp(yielded))
        rows = shape_of(arguments[0])[:-1]
        results = [(0, f32_tensor((*rows, shape_of(value)[-1]))) for value in yielded]
        tile = TileOp(arguments, results, ScheduleAttr(widths), region)
        block.add_op(tile)
        return tile.outputs

    return function(inputs, fill)


def one_op(make: Callable[..., Operation], shapes: Sequence[int], constants: Sequence[Floats] = ()) -> ModuleOp:
    """A tile of one op: operands are inputs of these numbers of features, then constants."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        parameters = [ConstantOp(constant) for constant in constants]
        op = make(*arguments, *(parameter.result for parameter in parameters))
        block.add_ops([*parameters, op])
        return op.results

    return tiled([f32_tensor((DYNAMIC, features)) for features in shapes], body)


def linear_layer(
    weight: Floats,
    bias: Floats | None,
    family: str | KernelAttr,
    activation: ActivationAttr | None = None,
    widths: Sequence[int] = (1, 8, 32),
) -> ModuleOp:
    """A tile of one linear layer that `family` executes, or a kernel that says more than the family."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        constant = SparseConstantOp(CscMatrix.from_dense(weight)) if family == "sparse_rows" else ConstantOp(weight)
        ops: list[Operation] = [constant]
        if bias is not None:
            ops.append(ConstantOp(bias))
        layer = LinearOp(arguments[0], *(op.results[0] for op in ops), activation=activation)
        layer.kernel = KernelAttr({1: family}, "by the test") if isinstance(family, str) else family
        block.add_ops([*ops, layer])
        return [layer.result]

    return tiled([f32_tensor((DYNAMIC, weight.shape[0]))], body, widths)


def native(module: ModuleOp, target: CpuTarget, threads: int = 1) -> Network:
    """The module as native code."""
    program = lower(module, target)
    return Network(program, object_of(program.llvm_ir, target), threads)


@lru_cache(256)
def object_of(llvm_ir: str, target: CpuTarget) -> bytes:
    """The object file; layers that differ in weights alone have one code."""
    return emit_object(llvm_ir, target)


def run_depth_first(tile: TileOp, layers: range, blocks: Blocks, width: int = 1) -> None:
    """Write one group of layers of a tile that run depth first, in tiles from some width on."""
    chain = [chain_of(tile.body.block)[number] for number in layers]
    found = order_neurons(positioned_graph(weighted_graph_of(chain).graph), blocks)
    order = DepthFirstOrderAttr(found.runs, found.order, found.slots)
    tile.depth_first = DepthFirstAttr(width, [LayerGroupAttr(layers, "by the test", order)])
    tile.verify()
