"""Reports say in tiles of which widths a layer runs, which numbers are bounds, and what was tried for all layers."""

from collections.abc import Sequence

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.few_bits import FewBitsAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.ops.constants import SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.provenance import ORDER, SEARCH
from redpebble.dialect.reports.module_report import layer_reports
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.passes.tiles.drop_dead_rows import DropDeadRows
from redpebble.runtime.jit import host_target
from redpebble.sparse.csr import CscMatrix
from tests.support.lowering_modules import native, tiled

WIDTH, DEPTH = 32, 6
TIMES = {1: 0.5, 8: 1.5, 16: 2.5, 32: 4.0, 48: 5.5, 64: 7.0}


def chain(widths: Sequence[int]) -> ModuleOp:
    """A tile of layers in which rows of zeros stay zeros, with predicted times."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        value = arguments[0]
        for _ in range(DEPTH):
            constant = SparseConstantOp(CscMatrix.from_dense(np.eye(WIDTH, dtype=np.float32)))
            layer = LinearOp(value, constant.result, activation=ActivationAttr("relu"))
            layer.kernel = KernelAttr({1: "permute_lookup", 8: "count_blocks"}, "by the test", TIMES)
            block.add_ops([constant, layer])
            value = layer.result
        return [value]

    return tiled([f32_tensor((DYNAMIC, WIDTH))], body, widths)


def test_only_kernels_are_reported_for_whose_widths_there_are_tiles() -> None:
    for report in layer_reports(chain((8, 32))):
        assert report.kernel == "count_blocks"
        assert report.families == {"8": "count_blocks", "32": "count_blocks"}
        assert report.predicted_us == {"8": 1.5, "32": 4.0}
        assert [*report.predicted_bytes] == ["8", "32"]
        assert report.at_most == ()


def test_codes_of_few_bits_are_counted_as_their_kernel_reads_them() -> None:
    weight = np.where(np.random.default_rng(0).random((512, 256)) < 0.5, np.float32(1.0), np.float32(0.0))
    few_bits = FewBitsAttr(4, 32, 4, np.ones(256 * 16, np.float32), np.zeros(0, np.int16))

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        constant = SparseConstantOp(CscMatrix.from_dense(weight), few_bits)
        layer = LinearOp(arguments[0], constant.result)
        layer.kernel = KernelAttr({1: "code_slots", 8: "count_blocks"}, "by the test", TIMES)
        block.add_ops([constant, layer])
        return [layer.result]

    (report,) = layer_reports(tiled([f32_tensor((DYNAMIC, 512))], body, (1, 8)))
    values = 4 * (512 + 256)
    assert report.predicted_bytes["1"] - values < 0.75 * weight.size
    assert report.predicted_bytes["8"] - 8 * values == 6 * np.count_nonzero(weight)


def test_behind_dropped_rows_the_numbers_of_full_tiles_are_bounds() -> None:
    module = chain((1, 16, 64))
    DropDeadRows().apply(Context(), module)
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    assert tile.dead_rows is not None
    assert tile.dead_rows.width == 48
    first, *later = layer_reports(module)
    for report in (first, *later):
        assert report.kernel == "permute_lookup from 1, count_blocks from 16, count_blocks on live rows from 48"
        assert report.predicted_us == {"1": 0.5, "16": 2.5, "48": 5.5}
    assert first.at_most == ()
    assert [report.at_most for report in later] == [("48",)] * (DEPTH - 1)
    stages = len(tile.dead_rows.layers) + 1
    assert f"stage 1 of {stages}, between which rows of zeros are dropped" in first.reason
    assert all("at 48 as if every row lived" in report.reason for report in later)


def test_the_report_of_a_network_says_what_was_tried_for_all_layers() -> None:
    module = chain((8, 32))
    module.attributes |= {ORDER: StringAttr("identity; tried counts"), SEARCH: StringAttr("2 -> 1 us a row")}
    report = native(module, host_target()).report
    assert report.neuron_order == "identity; tried counts"
    assert report.schedule_search == "2 -> 1 us a row"
    assert (len(report), report[0], report[1:]) == (DEPTH, report.layers[0], report.layers[1:])
