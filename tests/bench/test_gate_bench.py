"""The table of layers in sessions: which layers it has, and which number of rows is the slowest one."""

from redpebble.bench.gate_bench import SHOWN, Gate, layers_of, measure, table_of
from redpebble.tools.benching.layer_cases import RandomLayer


def _cells(gate: Gate) -> dict[str, str]:
    table = table_of([gate])
    return {str(column.header): str(next(iter(column.cells))) for column in table.columns}


def test_each_shape_has_each_share_of_zeros() -> None:
    names = [layer.name for layer in layers_of("8x16,16x8", ".5,.9")]
    assert names == ["8x16@0.5", "8x16@0.9", "16x8@0.5", "16x8@0.9"]


def test_the_least_ratio_is_shown_with_its_rows() -> None:
    ratios = dict.fromkeys(SHOWN, 2.0) | {5: 0.75}
    cells = _cells(Gate(RandomLayer(8, 16, 0.5), taken=True, ratios=ratios, predicted=None))
    assert (cells["least"], cells["predicted"], cells["32"]) == ("0.75x at 5", "", "2.00x")


def test_a_session_for_some_rows_is_measured_at_these_alone() -> None:
    gate = measure(RandomLayer(16, 16, 0.0), 3, 0.0)
    assert list(gate.ratios) == [3]
    assert not gate.taken
    assert gate.predicted is None
