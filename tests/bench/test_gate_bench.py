"""The table of layers in sessions: which layers it has, and which number of rows is the slowest one."""

from redpebble.bench.gate_bench import SHOWN, Gate, cells_of, layers_of, measure
from redpebble.tools.benching.layer_cases import RandomLayer


def test_each_shape_has_each_share_of_zeros() -> None:
    names = [layer.name for layer in layers_of("8x16,16x8", ".5,.9")]
    assert names == ["8x16@0.5", "8x16@0.9", "16x8@0.5", "16x8@0.9"]


def test_the_least_ratio_is_shown_with_its_rows() -> None:
    ratios = dict.fromkeys(SHOWN, 2.0) | {5: 0.75}
    cells = cells_of(Gate(RandomLayer(8, 16, 0.5), taken=True, ratios=ratios, predicted=None), SHOWN)
    assert cells == ("8x16@0.5", "yes", "", "0.75x at 5", *["2.00x"] * len(SHOWN))


def test_a_session_for_some_rows_is_measured_at_these_alone() -> None:
    gate = measure(RandomLayer(16, 16, 0.0), 3, 0.0, (3,))
    assert list(gate.ratios) == [3]
    assert not gate.taken
    assert gate.predicted is None
