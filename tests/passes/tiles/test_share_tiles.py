"""Where layers are cut so that threads do a tile together."""

from collections.abc import Sequence

import numpy as np
import pytest
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.row_panels import PanelsAttr
from redpebble.dialect.ops.constants import SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.passes.tiles.share_tiles import ShareTiles
from redpebble.sparse.csr import CscMatrix
from tests.passes.pass_texts import only, run
from tests.support.lowering_modules import tiled

SLOW = {width: 100.0 * width for width in (1, 8, 16, 32, 64)}


def borders(
    weight: np.ndarray, threads: int, family: str = "count_blocks", panels: PanelsAttr | None = None
) -> list[int]:
    """Where the outputs of a slow layer are cut."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        constant = SparseConstantOp(CscMatrix.from_dense(weight))
        constant.panels = panels
        layer = LinearOp(arguments[0], constant.result)
        layer.kernel = KernelAttr({1: family}, "by the test", SLOW)
        block.add_ops([constant, layer])
        return [layer.result]

    module = run(tiled([f32_tensor((DYNAMIC, weight.shape[0]))], body), ShareTiles(threads))
    return list(only(module, LinearOp).borders)


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_pieces_have_about_as_many_connections(threads: int) -> None:
    rng = np.random.default_rng(threads)
    weight = (rng.random((200, 480)) < np.linspace(0.01, 0.6, 480)).astype(np.float32)
    counts = [np.count_nonzero(piece) for piece in np.split(weight, borders(weight, threads)[1:-1], axis=1)]
    assert len(counts) == threads
    assert max(counts) - min(counts) < 16 * 200 * 0.6


def test_outputs_of_one_panel_stay_together() -> None:
    weight = np.ones((8, 64), dtype=np.float32)
    across_the_middle = PanelsAttr.of([[30, 31, 32, 33]], 1.0)
    assert borders(weight, 2) == [0, 32, 64]
    assert borders(weight, 2, "row_panels", across_the_middle)[1] in (16, 48)


def test_outputs_that_dense_kernels_do_at_once_stay_together() -> None:
    assert borders(np.ones((8, 200), dtype=np.float32), 2, "dense_outputs") == [0, 128, 200]


def test_a_layer_of_few_outputs_is_not_cut() -> None:
    assert borders(np.ones((8, 16), dtype=np.float32), 2) == []


def test_one_thread_cuts_nothing() -> None:
    assert borders(np.ones((8, 64), dtype=np.float32), 1) == []
