"""The facts about layers of known structure, read from the IR and the report; random masks have none."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.ir import Block, SSAValue

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.reports.module_report import layer_reports
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.models.radixnet import RadixNet, radixnet_patterns
from redpebble.models.structured import PANEL_ROWS, n_of_m, panels
from redpebble.passes.kernels.choose_kernels import ChooseKernels
from redpebble.passes.kernels.discover_structure import DiscoverStructure, facts_of
from redpebble.passes.simplify.sparsify import Sparsify
from redpebble.passes.tiles.form_tiles import FormTiles
from redpebble.sparse.csr import CsrPattern
from redpebble.sparse.patterns.bands_and_components import Components, Connectivity
from redpebble.sparse.patterns.similar_rows import first_alike
from tests.support.lowering_modules import function, linear_layer
from tests.support.patterns import Mask, rows_of, sample_of, shuffled


def facts(mask: Mask) -> dict[str, Mapping[str, int]]:
    return facts_of_rows(rows_of(mask))


def facts_of_rows(rows: CsrPattern) -> dict[str, Mapping[str, int]]:
    found, _ = facts_of(rows, first_alike(rows), sample_of(rows), np.random.default_rng(0))
    return {fact.kind: fact.numbers for fact in found}


def connectivity(rows: CsrPattern) -> Connectivity:
    return Connectivity(rows, sample_of(rows))


def banded(width: int, reach: int, density: float = 0.6) -> Mask:
    apart = np.abs(np.arange(width)[:, None] - np.arange(width))
    return (apart <= reach) & (np.random.default_rng(5).random((width, width)) < density)


def test_a_shuffled_band_is_found_again() -> None:
    band = connectivity(rows_of(shuffled(banded(600, 6), seed=1))).band()
    assert band is not None
    assert band.before > 500
    assert band.after <= 3 * 6


def test_a_band_of_more_outputs_than_inputs_is_one_too() -> None:
    mask = np.repeat(banded(300, 4), 2, axis=0)
    found = connectivity(rows_of(shuffled(mask, seed=2))).band()
    assert found is not None
    assert found.after <= 4 * 4


def test_separate_parts_are_counted() -> None:
    mask = np.kron(np.eye(5, dtype=bool), np.ones((6, 4), dtype=bool))
    mask[:, -4:] &= np.arange(30)[:, None] < 0
    assert connectivity(rows_of(shuffled(mask, seed=3))).components() == Components(4, 0.25)


@pytest.mark.parametrize("density", [0.01, 0.1, 0.5])
def test_a_random_mask_has_no_band_and_one_part(density: float) -> None:
    graph = connectivity(rows_of(np.random.default_rng(4).random((500, 500)) < density))
    assert graph.band() is None
    assert graph.components() == Components(1, 1.0)


def test_a_layer_without_connections_has_no_facts() -> None:
    empty = rows_of(np.zeros((3, 5), dtype=bool))
    assert connectivity(empty).components() == Components(0, 0.0)
    assert connectivity(empty).band() is None
    assert facts_of_rows(empty) == {}


def test_what_was_planted_and_shuffled_is_what_is_found() -> None:
    mask = np.repeat(np.repeat(np.random.default_rng(6).random((40, 60)) < 0.2, 8, axis=0), 2, axis=1)
    mask[:3] = False
    found = facts(shuffled(mask, seed=7))
    assert found["blocks"] == {"outputs": 8, "inputs": 2}
    assert found["dead"]["outputs"] >= 3
    assert facts(shuffled(n_of_m(1, 4)(256, np.random.default_rng(8)), seed=9)) == {
        "shuffled_n_of_m": {"kept": 1, "of": 4}
    }


def test_a_few_neurons_like_others_and_dead_ones_are_counted() -> None:
    mask = np.random.default_rng(12).random((100, 100)) < 0.2
    mask[:, 3] = mask[:, 7] = mask[:, 9]
    mask[4] = mask[50]
    mask[20] = False
    assert facts(mask) == {"dead": {"inputs": 0, "outputs": 1}, "alike": {"inputs": 2, "outputs": 1}}


@pytest.mark.parametrize("density", [0.05, 0.3])
def test_random_masks_have_no_facts(density: float) -> None:
    assert facts(np.random.default_rng(10).random((300, 400)) < density) == {}


def test_a_radixnet_is_exact_panels_of_its_classes_without_being_told() -> None:
    patterns = radixnet_patterns(RadixNet(1024, 8), np.random.default_rng(0))
    for layer, pattern in enumerate(patterns):
        rows = CsrPattern(pattern.pointers, pattern.indices.astype(np.int64), 1024)
        kinds = facts_of_rows(rows)
        # stride 32 of 64 classes: 0 and 32 are each other's neighbours, so that twice as many neurons are alike
        height = 32 if layer % 6 == 5 else 16
        assert kinds["blocks"] == {"outputs": height, "inputs": height}
        assert ("circulant" in kinds) == (layer < 6)


def test_facts_and_panels_are_lines_of_the_report() -> None:
    weight = np.repeat(np.random.default_rng(11).random((96, 12)) < 0.2, 8, axis=1).astype(np.float32)
    module = linear_layer(weight, None, "row_panels")
    for found in (Sparsify(), DiscoverStructure()):
        found.apply(Context(), module)
    (constant,) = [op for op in module.walk() if isinstance(op, SparseConstantOp)]
    assert constant.panels is not None
    (report,) = layer_reports(module)
    lines = report.structure.split("\n")
    assert lines[0] == "panels, 12 of 8 outputs, with 100 % of the connections"
    assert "blocks of outputs by inputs, 8 by 1" in lines


def test_outputs_that_read_from_the_same_inputs_are_panels_too() -> None:
    mask = shuffled(panels(1024, np.random.default_rng(14)), seed=15)
    module = linear_layer(mask.T.astype(np.float32), None, "groups")
    for found in (Sparsify(), DiscoverStructure()):
        found.apply(Context(), module)
    (constant,) = [op for op in module.walk() if isinstance(op, SparseConstantOp)]
    assert constant.panels is not None
    assert [(height, len(outputs)) for height, outputs in constant.panels.panels] == [(PANEL_ROWS, 1024 // PANEL_ROWS)]
    union = [mask[members].any(axis=0).sum() for members in constant.panels.panels[0][1]]
    assert set(union) == {512}


@pytest.mark.parametrize(("height", "widest"), [(8, 48), (1, 64)])
def test_panels_run_in_tiles_of_three_vectors_and_random_masks_in_those_of_four(height: int, widest: int) -> None:
    mask = np.repeat(np.random.default_rng(13).random((512, 512 // height)) < 0.1, height, axis=1)

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        weight = ConstantOp(mask.astype(np.float32))
        layer = LinearOp(arguments[0], weight.result)
        block.add_ops([weight, layer])
        return [layer.result]

    module = function([f32_tensor((DYNAMIC, 512))], body)
    for step in (Sparsify(), DiscoverStructure(), ChooseKernels(), FormTiles()):
        step.apply(Context(), module)
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    assert tile.schedule.widths[-1] == widest
