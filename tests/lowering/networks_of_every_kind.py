"""A small network of each kind of code, with sizes that are no multiples of vectors."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.attention import AttentionOp, Heads, Weighting
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp
from redpebble.dialect.ops.graphs import AggregateOp, AtTargets, AttendEdgesOp, EdgeSoftmax
from redpebble.dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp
from redpebble.dialect.ops.layers import BatchMatmulTransposeBOp, LayerNormOp, SoftmaxOp
from redpebble.dialect.ops.movement import ConcatOp, SplitOp, TransposeOp
from redpebble.dialect.tensors import DYNAMIC, Shape, f32_tensor
from redpebble.kernels.byte_times import FORMS
from redpebble.kernels.families import FAMILIES
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.passes.images.form_image_networks import FormImageNetworks
from redpebble.sparse.csr import CscMatrix
from redpebble.sparse.edges import EdgeList
from tests.lowering.images.test_quantized import Conv, H, chain
from tests.support.kernel_cases import Case, module_of
from tests.support.lowering_modules import Body, Floats, function, tiled
from tests.support.quantized_layers import CODES, Layers

Calls = Sequence[Mapping[str, NDArray[Any]]]


class Example(NamedTuple):
    """A network, and the inputs of calls."""

    module: ModuleOp
    calls: Calls


ROWS = (1, 7, 41)
"""Batches: one row, less than a vector, and tiles of all widths with some rows left."""


def calls(shapes: Sequence[Shape], samples: Sequence[int] = ROWS) -> Calls:
    """Inputs x0, x1, ... of these shapes for some samples, which stand where a size is not known."""
    rng = np.random.default_rng(0)

    def array(shape: Shape, count: int) -> Floats:
        return rng.standard_normal([count if size == DYNAMIC else size for size in shape], dtype=np.float32)

    return [{f"x{index}": array(shape, count) for index, shape in enumerate(shapes)} for count in samples]


def example(shapes: Sequence[Shape], body: Body, samples: Sequence[int] = ROWS) -> Example:
    return Example(function([f32_tensor(shape) for shape in shapes], body), calls(shapes, samples))


def ops(*some: Operation, block: Block) -> Sequence[SSAValue]:
    """Add operations to a block; return the results of the last one."""
    block.add_ops(some)
    return some[-1].results


def linear(family: str, target: CpuTarget) -> Example:
    case = Case(family, target, (93, 45), "uniform", 0, 0)
    bias = np.linspace(-1, 1, 45, dtype=np.float32)
    return Example(module_of(case, case.weight(), bias), calls([(DYNAMIC, 93)]))


def over_features(_: CpuTarget) -> Example:
    shape = (DYNAMIC, 37)

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        scale = ConstantOp(np.linspace(0.5, 2, 37, dtype=np.float32))
        normal = LayerNormOp(arguments[0], scale.result, None, 1e-5)
        active = ActivateOp(normal.result, ActivationAttr("tanh"))
        return ops(scale, normal, active, SoftmaxOp(active.result), block=block)

    return Example(tiled([f32_tensor(shape)], body), calls([shape]))


def moved(_: CpuTarget) -> Example:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        x, y = arguments
        split = SplitOp(x, 2, [3, 10])
        joined = ConcatOp([split.parts[1], split.parts[0]], 2)
        sums = AddOp(joined.result, y)
        block.add_ops([split, joined, sums])
        return [split.parts[0], *ops(TransposeOp(sums.result, (2, 0, 1)), block=block)]

    return example([(DYNAMIC, 5, 13), (5, 13)], body)


def products(_: CpuTarget) -> Example:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return ops(BatchMatmulTransposeBOp(*arguments), block=block)

    return example([(3, DYNAMIC, 19), (3, 21, 19)], body)


def attention(_: CpuTarget) -> Example:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        q, k, v, mask = arguments
        return ops(AttentionOp((q, k, v), mask, Heads(2, 1), Weighting(0.2, causal=True)), block=block)

    keys = 37
    return example([(2, DYNAMIC, 38), (2, keys, 19), (2, keys, 5), (2, 1, DYNAMIC, keys)], body)


def graph(nodes: int) -> CscMatrix:
    """Edges of which some are there twice, and the last nodes have none."""
    sources, targets = np.random.default_rng(4).integers(0, nodes - 3, (2, 4 * nodes))
    return EdgeList(sources, targets).matrix((nodes, nodes))


def aggregate(_: CpuTarget) -> Example:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        edges = SparseConstantOp(graph(21))
        return ops(edges, AggregateOp(arguments[0], edges.result, AtTargets(), maximum=True), block=block)

    return example([(DYNAMIC, 21, 13)], body)


def attend(_: CpuTarget) -> Example:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        edges = SparseConstantOp(graph(21))
        softmax = EdgeSoftmax(3, ActivationAttr("leaky_relu", (0.2,)), 1e-16, from_zero=False)
        return ops(edges, AttendEdgesOp(arguments[0], arguments[1], edges.result, softmax, AtTargets()), block=block)

    return example([(21, 3 * 5), (21, 2 * 3)], body, [1])


def codes_by_a_table(_: CpuTarget) -> Example:
    """Convolutions on codes, with an activation in between that is a look-up of each code."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        (value,) = chain(Conv(5, 7, WINDOWS["points"]))(block, arguments)
        active = ActivateOp(value, ActivationAttr("tanh"))
        block.add_op(active)
        return chain(Conv(7, 6, WINDOWS["squares"], H))(block, [active.result])

    return images((9, 11), body)


def layers(_: CpuTarget, *, windows: int = 0, of_bytes: bool = False, quads: str = "") -> Example:
    """Two layers, or one by so many windows of inputs, whose rows end the scratch memory; all rows of it are used."""
    sizes = [64 * windows, 50] if windows else [93, 50, 19]
    made = Layers(sizes, CODES, windows=windows > 0, of_bytes=of_bytes, quads=quads)
    inputs = calls([(DYNAMIC, sizes[0])], (*ROWS, 128))
    if of_bytes:
        return Example(made.module(), [{"x0": (40 * one["x0"] + 128).clip(0, 255).astype(np.uint8)} for one in inputs])
    return Example(made.module(), inputs)


WINDOWS: Mapping[str, WindowAttr] = {
    "points": WindowAttr((1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    "squares": WindowAttr((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "strides": WindowAttr((3, 3), (2, 2), (1, 1), (1, 0, 1, 0)),
    "distances": WindowAttr((3, 2), (1, 2), (2, 3), (2, 3, 0, 1)),
}

SIZES: Sequence[tuple[int, int]] = ((9, 11), (16, 16), (3, 70))


def images(size: tuple[int, int], body: Body) -> Example:
    shape = (DYNAMIC, 5, *size)
    module = function([f32_tensor(shape)], body)
    FormImageNetworks(1).apply(Context(), module)
    return Example(module, calls([shape], (1, 3)))


def image_codes(window: str, size: tuple[int, int], _: CpuTarget) -> Example:
    return images(size, chain(Conv(5, 7, WINDOWS[window])))


def image_floats(window: str, size: tuple[int, int], _: CpuTarget) -> Example:
    form = WINDOWS[window]

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        rng, taps = np.random.default_rng(0), len(form.taps)
        weight = rng.standard_normal((5 * taps, 7)) * (rng.random((5 * taps, 7)) < 0.3)
        constants = [
            SparseConstantOp(CscMatrix.from_dense(weight.astype(np.float32))),
            ConstantOp(rng.standard_normal((len(WINDOWS["squares"].taps), 7), dtype=np.float32)),
        ]
        conv = Conv2dOp(arguments[0], constants[0].results[0], None, form)
        conv.kernel = KernelAttr({1: "count_blocks"}, "by the test", {64: 1.0})
        depthwise = Depthwise2dOp(conv.result, constants[1].results[0], None, WINDOWS["squares"])
        return ops(*constants, conv, depthwise, Pool2dOp(depthwise.result, "max", WINDOWS["squares"]), block=block)

    return images(size, body)


Make = Callable[[CpuTarget], Example]


def of_images(wanted: Callable[[int, int], bool]) -> dict[str, Make]:
    """Floats and codes by windows and sizes, of those whose numbers are wanted."""
    return {
        f"{kind} {window} {height}x{width}": partial(make, window, (height, width))
        for kind, make in (("floats", image_floats), ("codes", image_codes))
        for row, window in enumerate(WINDOWS)
        for column, (height, width) in enumerate(SIZES)
        if wanted(row, column)
    }


KINDS: dict[str, Make] = {
    **{name: partial(linear, name) for name, family in FAMILIES.items() if not family.rounds},
    "over features": over_features,
    "moved": moved,
    "products": products,
    "attention": attention,
    "aggregate": aggregate,
    "attend": attend,
    "quantized layers": layers,
    "quantized layers by windows": partial(layers, windows=3),
    "quantized layers of bytes": partial(layers, of_bytes=True),
    **{f"quantized layers by {family}": partial(layers, quads=family) for family in FORMS},
    "codes by a table": codes_by_a_table,
    **of_images(lambda window, size: window == size),
}

MORE_IMAGES = of_images(lambda window, size: window != size)
