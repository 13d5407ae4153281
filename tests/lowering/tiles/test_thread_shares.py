"""Threads that do one tile together make the bits that one thread makes."""

from collections.abc import Sequence

import numpy as np
import pytest
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, i64
from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.schedule import ScheduleAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp, MulOp
from redpebble.dialect.ops.layers import LayerNormOp, LinearOp, LogSoftmaxOp, ReduceMeanOp, SoftmaxOp
from redpebble.dialect.ops.movement import ConcatOp, SplitOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.symbolic_sizes import bind_symbols
from redpebble.dialect.tensors import DYNAMIC, f32_tensor, shape_of
from redpebble.kernels.families import FAMILIES
from redpebble.lowering.calls.network_table import IN_PROCESS
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.lowering.tiles.thread_shares import even_borders
from redpebble.runtime.bound_call import BoundCall
from redpebble.runtime.call import new_call
from redpebble.runtime.jit import host_target
from redpebble.runtime.loaded_network import load_network
from redpebble.sparse.csr import CscMatrix
from tests.support.absent_threads import AbsentThreads
from tests.support.few_bits import FewBits
from tests.support.few_bits_layers import constant_of, layer
from tests.support.lowering_modules import Floats, best_target_first, function, native, object_of, tiled

BATCHES = (0, 1, 5, 17, 40, 65)

WIDTHS = (1, 8, 32)

OF_FLOATS = {name for name, family in FAMILIES.items() if not family.rounds}
"""Families of layers in float32; the other one has tests of its own, in `test_bfloat`."""

SINGLE_ROW = {name for name, family in FAMILIES.items() if family.widths == (1,)}
TOGETHER = SINGLE_ROW | {"lookup_rows", "narrow_blocks", "strips"}
"""Families in which the order of a row's sum depends on the rows it is packed with, so on where a layer is cut."""


def shared(module: ModuleOp, shares: int) -> ModuleOp:
    """The module with every layer cut, and times that make threads do all tiles together."""
    copy = module.clone()
    for op in copy.walk():
        if isinstance(op, TileOp):
            widths = op.schedule.widths
            alone = {width: 1000.0 * (width + 1) for width in widths}
            op.schedule = ScheduleAttr(widths, shares, alone, dict.fromkeys(widths, 1.0))
        elif isinstance(op, LinearOp):
            borders = even_borders(shape_of(op.weight)[1], shares)
            op.cut = DenseArrayBase.from_list(i64, borders)
    copy.verify()
    return copy


def sparse(shape: tuple[int, int], seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal(shape) * (rng.random(shape) < 0.3)
    weight[:, 3] = 0
    return weight.astype(np.float32)


def two_layers(family: str) -> ModuleOp:
    """Two layers of one family, the second one narrower than the first."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        value = arguments[0]
        for number, shape in enumerate([(70, 150), (150, 90)]):
            weight = sparse(shape, number)
            constant = SparseConstantOp(CscMatrix.from_dense(weight)) if family == "row_panels" else ConstantOp(weight)
            bias = ConstantOp(np.linspace(-1, 1, shape[1], dtype=np.float32))
            layer = LinearOp(value, constant.result, bias.result, ActivationAttr("relu"))
            layer.kernel = KernelAttr({1: family}, "by the test")
            block.add_ops([constant, bias, layer])
            value = layer.result
        return [value]

    widths = (1,) if family in SINGLE_ROW else WIDTHS
    return tiled([f32_tensor((DYNAMIC, 70))], body, widths)


def everything() -> ModuleOp:
    """Layers, and all other ops between them, some in place, on parts of a concat and of a split."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        def add(op: Operation) -> SSAValue:
            block.add_op(op)
            return op.results[0]

        def linear(x: SSAValue, outputs: int) -> SSAValue:
            layer = LinearOp(x, add(ConstantOp(sparse((shape_of(x)[-1], outputs), outputs))))
            layer.kernel = KernelAttr({1: "count_blocks"}, "by the test", blocks={"count_blocks": 2})
            return add(layer)

        x, other = arguments
        left, right = linear(x, 64), linear(other, 48)
        gelu = add(ActivateOp(right, ActivationAttr("gelu")))
        whole = add(ConcatOp([left, gelu, x], 1))
        normal = add(LayerNormOp(whole, add(ConstantOp(np.linspace(0.5, 2, 144, dtype=np.float32))), None, 1e-5))
        split = SplitOp(normal, 1, [32, 64, 48])
        block.add_op(split)
        first, second, third = split.parts
        scaled = add(MulOp(second, add(ConstantOp(np.linspace(-1, 1, 64, dtype=np.float32)))))
        residual = add(AddOp(scaled, left))
        chance = add(SoftmaxOp(linear(residual, 100)))
        mean = add(ReduceMeanOp(chance))
        centred = add(AddOp(linear(third, 100), mean))
        return [add(LogSoftmaxOp(centred)), chance, add(ActivateOp(first, ActivationAttr("tanh"))), other]

    return tiled([f32_tensor((DYNAMIC, 32)), f32_tensor((DYNAMIC, 20))], body, WIDTHS)


def with_same_times(module: ModuleOp, other: ModuleOp) -> ModuleOp:
    """The module with the times of another one, by which rows are cut into tiles."""
    copy = module.clone()
    tiles = [[op for op in one.walk() if isinstance(op, TileOp)] for one in (copy, other)]
    for tile, timed in zip(*tiles, strict=True):
        tile.schedule = ScheduleAttr(tile.schedule.widths, serial=timed.schedule.serial)
    return copy


def assert_same_bits(module: ModuleOp, shares: int, target: CpuTarget) -> None:
    cut = shared(module, shares)
    alone, together = native(with_same_times(module, cut), target), native(cut, target, shares)
    assert all(step.tiled is not None and step.tiled.shared for step in together.program.steps)
    for batch in BATCHES:
        rng = np.random.default_rng(batch)
        feeds = {
            node.name: rng.standard_normal((batch, int(node.shape[1]))).astype(np.float32)
            for node in alone.get_inputs()
        }
        expected = alone.run(None, feeds)
        for threads in range(1, shares + 1):
            for one, other in zip(expected, together.run(None, feeds, threads=threads), strict=True):
                assert one.tobytes() == other.tobytes(), (batch, threads)


@pytest.mark.parametrize("module", [two_layers("count_blocks"), everything()], ids=["layers", "everything"])
def test_shares_of_threads_that_have_not_begun_are_done_by_the_caller(module: ModuleOp) -> None:
    cut, target = shared(module, 3), host_target()
    program = lower(cut, target)
    loaded = load_network(program, object_of(program.llvm_ir, target), IN_PROCESS)
    alone, pool = native(with_same_times(module, cut), target), AbsentThreads(3)
    for batch in BATCHES[1:]:
        rng = np.random.default_rng(batch)
        feeds = {
            node.name: rng.standard_normal((batch, int(node.shape[1]))).astype(np.float32)
            for node in alone.get_inputs()
        }
        expected = alone.run(None, feeds)
        symbols = bind_symbols({one.name: one.shape for one in program.inputs}, [x.shape for x in feeds.values()])
        call = new_call(loaded, symbols, pool)
        assert call.is_parallel
        bound = BoundCall(call, [*feeds.values()], [np.empty_like(one) for one in expected])
        for one, other in zip(expected, bound.run(), strict=True):
            assert one.tobytes() == other.tobytes(), batch


@pytest.mark.parametrize(
    "family",
    [
        family if family == "count_blocks" else pytest.param(family, marks=pytest.mark.slow)
        for family in sorted(OF_FLOATS - TOGETHER)
    ],
)
def test_pieces_of_layers_make_the_same_bits(family: str) -> None:
    assert_same_bits(two_layers(family), 3, host_target())


@pytest.mark.slow
@best_target_first
def test_threads_meet_wherever_an_op_reads_what_others_wrote(target: CpuTarget) -> None:
    assert_same_bits(everything(), 3, target)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(OF_FLOATS))
def test_results_do_not_depend_on_the_threads_of_a_call(family: str) -> None:
    network = native(shared(two_layers(family), 3), host_target(), 3)
    x = np.random.default_rng(1).standard_normal((23, 70)).astype(np.float32)
    (expected,) = network.run(None, {"x0": x}, threads=1)
    for threads in (2, 3):
        assert network.run(None, {"x0": x}, threads=threads)[0].tobytes() == expected.tobytes()


@pytest.mark.parametrize("of_four", [0, 2])
def test_threads_share_weights_of_four_bits(of_four: int) -> None:
    case = FewBits(200, 90, zeros=0.6, accuracy=4, has_bias=True, of_four=of_four)
    network = native(shared(layer(constant_of(case), case.bias), 2), host_target(), 2)
    for rows in (1, 7, 23):
        x = np.random.default_rng(rows).standard_normal((rows, case.inputs), dtype=np.float32)
        one, two = (network.run(None, {"x0": x}, threads=threads)[0] for threads in (1, 2))
        assert one.tobytes() == two.tobytes()
        np.testing.assert_allclose(one, case.truth(x), atol=0.05)


def test_packed_weights_are_not_kept_twice() -> None:
    module = two_layers("count_blocks")
    one, three = (lower(each, host_target()) for each in (module, shared(module, 3)))
    sizes = [sum(array.nbytes for array in program.constants) for program in (one, three)]
    assert sizes[1] < 1.3 * sizes[0]


def test_a_function_without_tiles_has_nothing_to_share() -> None:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        op = ActivateOp(arguments[0], ActivationAttr("relu"))
        block.add_op(op)
        return [op.result]

    network = native(function([f32_tensor((DYNAMIC, 4))], body), host_target(), 2)
    x = np.linspace(-1, 1, 800, dtype=np.float32).reshape(200, 4)
    np.testing.assert_array_equal(network(x), np.maximum(x, 0))


def test_a_layer_that_is_cut_unlike_its_tile_is_refused() -> None:
    module = shared(two_layers("count_blocks"), 3)
    layer = next(op for op in module.walk() if isinstance(op, LinearOp))
    layer.cut = DenseArrayBase.from_list(i64, [0, 64, 150])
    with pytest.raises(ValueError, match=r"a pebble\.linear is cut into 2 shares, its tile into 3"):
        lower(module, host_target())
