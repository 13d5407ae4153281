"""Tables of layers: which kernel, at which widths, and numbers that are read as what they are."""

from dataclasses import replace

from redpebble.dialect.reports.layer_report import LayerReport, Report
from redpebble.tools.explain.layer_tables import AT_MOST, TOGETHER, layer_columns, reason_columns, report_notes

LAYER = LayerReport(
    name="fc",
    inputs=1000,
    outputs=20,
    connections=4000,
    density=0.2,
    format="csc",
    kernel="permute_lookup from 1, count_blocks from 8",
    reason="density 0.200; next strips",
    families={"1": "permute_lookup", "8": "count_blocks", "16": "count_blocks", "64": "count_blocks"},
    predicted_us={"1": 0.5, "8": 1.5, "16": 2.5, "64": 1234.5},
    measured_us={"1": 0.75, "16": 3.0},
    predicted_bytes={"1": 24_000.0, "8": 24_640.0, "16": 50_000.0, "64": 2_000_000.0},
    at_most=(),
    fewest_reads=None,
    most_reads=None,
    fewest_writes=None,
    most_writes=None,
    structure="",
)


def test_a_family_has_a_line_with_its_numbers_from_the_first_width_to_the_last() -> None:
    columns = layer_columns([LAYER], moved=True)
    assert columns["kernel"] == [["permute_lookup at 1", "count_blocks at 8 to 64"]]
    assert columns["predicted KB"] == [["24", "24.6 to 2,000"]]
    assert columns["predicted us"] == [["0.5", "1.5 to 1,234"]]


def test_numbers_of_another_width_than_the_first_or_last_say_so() -> None:
    assert layer_columns([LAYER], moved=False)["measured us"] == [["0.75", "3 at 16"]]


def test_numbers_that_fall_are_no_range_and_say_their_widths() -> None:
    layer = replace(LAYER, measured_us={"1": 0.75, "8": 0.32, "64": 0.234})
    assert layer_columns([layer], moved=False)["measured us"] == [["0.75", "0.32 at 8, 0.234 at 64"]]


def test_columns_of_which_nothing_is_known_are_left_out() -> None:
    bare = replace(LAYER, measured_us={})
    assert not {"measured us", "predicted KB"} & {*layer_columns([bare], moved=False)}
    assert [*reason_columns([bare])] == ["layer", "why"]
    assert reason_columns([replace(LAYER, structure="a\nb")])["structure"] == [["a", "b"]]
    unknown = replace(LAYER, families={}, predicted_us={}, measured_us={}, predicted_bytes={})
    assert layer_columns([unknown], moved=True)["predicted us"] == [[]]


def test_bounds_are_marked_and_explained() -> None:
    families = {"1": "permute_lookup", "48": "row_panels on live rows"}
    layer = replace(LAYER, families=families, predicted_us={"1": 1.0, "48": 9.0}, at_most=("48",))
    assert layer_columns([layer], moved=False)["predicted us"] == [["1", "<= 9"]]
    assert report_notes(Report((layer,))) == [AT_MOST]
    assert report_notes(Report((LAYER,))) == []


def test_what_was_tried_for_all_layers_is_said_once() -> None:
    layer = replace(LAYER, families={"64": "depth_first"})
    notes = report_notes(Report((layer, layer), "identity", "2 -> 1 us a row in 9 proposals"))
    assert notes == [
        "order of neurons: identity",
        "schedule of layers, annealed: 2 -> 1 us a row in 9 proposals",
        TOGETHER,
    ]


def test_a_number_that_is_known_at_one_width_alone_is_said_once() -> None:
    layer = replace(LAYER, predicted_us={"64": 4.5}, families={"1": "count_blocks", "64": "count_blocks"})
    assert layer_columns([layer], moved=False)["predicted us"] == [["4.5 at 64"]]
    first = replace(layer, predicted_us={"1": 4.5})
    assert layer_columns([first], moved=False)["predicted us"] == [["4.5 at 1"]]
