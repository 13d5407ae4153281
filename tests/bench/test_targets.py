"""Verdicts follow from numbers alone, and the table and the plots show them."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from redpebble.bench.results import plots
from redpebble.bench.results.page_tables import with_table
from redpebble.bench.results.target_table import target_lines, zoo_lines
from redpebble.bench.results.targets import Check, Target, all_checks, show
from redpebble.tools.benching.results import BOUND, BOUND_BASELINE, CEILING, Result, Row, with_minima

BEGIN, END = "<!-- targets: begin -->", "<!-- targets: end -->"
ROOT = Path(__file__).parent.parent.parent
SHAPES = ((768, 768), (1024, 1024), (768, 3072), (3072, 768), (4096, 4096))


def layer_row(suite: str, engine: str, place: tuple[int, int, float], median_us: float, shape: tuple[int, int]) -> Row:
    batch, threads, sparsity = place
    name = f"{shape[0]}x{shape[1]}@{sparsity:g}"
    connections = round(shape[0] * shape[1] * (1 - sparsity))
    ratio = None if suite == "kernel" else 100 / median_us
    numbers = (batch, threads, median_us, median_us, ratio)
    return Row(
        suite, name, engine, *numbers, inputs=shape[0], outputs=shape[1], sparsity=sparsity, connections=connections
    )


def result_with(speedup: float, *, two: float = 2.0) -> Result:
    """All layers `speedup` times as fast as each other engine on one thread, `two` times that on two threads."""
    rows: list[Row] = []
    for shape in SHAPES:
        for sparsity in (0.7, 0.8, 0.9, 0.95, 0.99):
            for batch in (1, 8, 32, 128, 512):
                for threads in (1, 2):
                    faster = speedup * (two if threads == 2 else 1)
                    place = (batch, threads, sparsity)
                    for suite, other in (("layer", "onnxruntime"), ("grid", "onnxruntime"), ("kernel", "mkl")):
                        rows.append(layer_row(suite, "redpebble", place, 100 / faster, shape))
                        rows.append(layer_row(suite, other, place, 100.0, shape))
                    rows.append(layer_row("layer", BOUND, place, 100 / faster, shape))
                    rows.append(layer_row("layer", BOUND_BASELINE, place, 100.0, shape))
                    rows.append(layer_row("kernel", CEILING, place, 90 / speedup, shape))
    networks = ("4x1024@0.8", "4x1024@0.9", "4x1024@0.95", "12x1024, 32 a neuron", "12x1024, 32 a neuron, shared by 16")
    rows += [
        Row("network", name, "redpebble", 64, threads, 1.0, 1.0, speedup, connections=1_000_000)
        for name in networks
        for threads in (1, 2)
    ]
    costs = {
        "call_run_us": 2.0,
        "call_onnxruntime_us": 4.0,
        "call_bound_us": 1.4,
        "compile_cold_s": 1.0,
        "compile_cached_ms": 10.0,
        "packing_us": 0.5,
        "packing_growth_ratio": 0.8,
        "memory_growth_ratio": 1.1,
        "memory_kept_ratio": 1.1,
    }
    ceilings = {"ports": 130.0, "L1": 400.0, "L2": 160.0, "L3": 30.0, "DRAM": 13.0}
    return Result({"cpu": "cpu", "cores": 2, "vector_floats": 16}, ceilings, rows, costs)


@pytest.mark.parametrize(
    ("target", "values", "verdict"),
    [
        (Target(2.0), {"": 2.0}, "met"),
        (Target(2.0), {"": 1.8}, "missed by 10.0 %"),
        (Target(2.0), {"M = 1": 3.0, "M = 8": 1.5, "M = 32": 1.9}, "missed by 25.0 % at M = 8"),
        (Target(2.0), {}, "not measured"),
        (Target(20.0, "ms", at_most=True), {"": 20.0}, "met"),
        (Target(20.0, "ms", at_most=True), {"": 30.0}, "missed by 50.0 %"),
    ],
)
def test_a_verdict_is_that_of_the_worst_value(target: Target, values: dict[str, float], verdict: str) -> None:
    check = Check("case", target, values)
    assert check.verdict == verdict
    assert check.is_met == (None if not values else verdict == "met")


@pytest.mark.slow
def test_everything_is_met_where_everything_is_fast_and_missed_where_nothing_is() -> None:
    fast, slow = all_checks(result_with(1e4)), all_checks(result_with(0.1, two=1.0))
    assert [check.case for check in fast] == [check.case for check in slow]
    assert all(check.is_met for check in fast)
    of_layers = [check for check in slow if "M = " in check.case or "sparsity" in check.case or "never" in check.case]
    assert len(of_layers) >= 40
    assert not any(check.is_met for check in of_layers if "ceiling" not in check.case)


def test_a_ratio_over_shapes_is_a_geometric_mean() -> None:
    rows = list(result_with(4.0).rows)
    changed = [
        index
        for index, row in enumerate(rows)
        if (row.suite, row.engine, row.batch, row.threads, row.sparsity) == ("layer", "redpebble", 1, 1, 0.9)
    ]
    for index, median_us in zip(changed, (100 / 2, 100 / 8, 25, 25, 25), strict=True):
        rows[index] = layer_row("layer", "redpebble", (1, 1, 0.9), median_us, SHAPES[changed.index(index)])
    (check,) = [
        check for check in all_checks(Result({}, rows=rows)) if check.case == "M = 1 against onnxruntime, sparsity 0.9"
    ]
    assert check.values == {"M = 1": pytest.approx(4.0)}


def test_one_slow_case_of_the_grid_is_named() -> None:
    rows = [*result_with(5.0).rows, layer_row("grid", "redpebble", (17, 1, 0.2), 125.0, (768, 768))]
    (check,) = [
        check for check in all_checks(Result({}, rows=rows)) if check.case.startswith("never slower, 1 thread:")
    ]
    assert check.verdict == "missed by 15.8 % at 768x768@0.2, M = 17"


def test_what_was_not_measured_is_said() -> None:
    checks = all_checks(Result({}))
    assert {check.verdict for check in checks} == {"not measured"}
    lines = target_lines(Result({"cpu": "c", "cores": 1, "vector_floats": 8}))
    assert lines[0] == f"0 of 0 targets met; {len(checks)} not measured."


def test_a_result_by_the_clock_of_a_thread_is_preliminary() -> None:
    lines = target_lines(Result({"cpu": "c", "clock": "thread"}))
    assert lines[1] == "Preliminary: others used the machine, so times are those of one thread on its core."


def test_shares_of_the_ports_stand_beside_the_ratios() -> None:
    rows = [
        layer_row("layer", engine, (128, 2, 0.9), us, (1000, 1000))
        for engine, us in (("redpebble", 250.0), ("onnxruntime", 500.0))
    ]
    result = Result({}, {"ports": 80.0}, rows)
    check = next(check for check in all_checks(result) if check.shares)
    # 100 000 connections, 128 rows: 25.6 million operations in 250 us are 102.4 GF, of 160 that two cores can do
    assert check.case == "2 threads: end to end against onnxruntime, sparsity 0.9"
    assert check.shares == {"M = 128": pytest.approx(0.64)}
    line = next(line for line in target_lines(result) if check.case in line)
    assert "| M = 128: 2.00x | 64 % |" in line


def test_the_table_takes_the_place_between_the_markers() -> None:
    lines = target_lines(result_with(1e4))
    assert "| compile 4x1024 at 0.9, from cache | <= 20.0 ms | 10.0 ms |  | met |" in lines
    page = with_table(f"# Page\n{BEGIN}\nwhat was here\n{END}\nrest\n", "targets", lines)
    assert page.startswith(f"# Page\n{BEGIN}\n")
    assert page.endswith(f"{END}\nrest\n")
    assert "what was here" not in page
    assert with_table(page, "targets", lines) == page


def test_a_network_of_the_zoo_is_a_line_for_each_number_of_threads() -> None:
    rows = [
        Row("zoo", "digits.onnx", "redpebble", batch, threads, 10.0 * batch, 1.0, 2.5 * threads)
        for threads in (1, 2)
        for batch in (1, 512)
    ]
    assert zoo_lines(Result({}, rows=rows))[2:] == [
        "| digits | 1 | 2.5x (10 us) |  |  |  | 2.5x (5120 us) |",
        "| digits | 2 | 5.0x (10 us) |  |  |  | 5.0x (5120 us) |",
    ]


def test_minima_take_the_place_of_medians() -> None:
    rows = [
        Row("zoo", "m", "redpebble", 1, 1, 10.0, 4.0, 2.0),
        Row("zoo", "m", "onnxruntime", 1, 1, 20.0, 12.0, 1.0),
        Row("kernel", "m", "mkl", 1, 1, 20.0, 12.0),
    ]
    found = with_minima(Result({}, rows=rows)).rows
    assert [row.median_us for row in found] == [4.0, 12.0, 12.0]
    assert [row.speedup_vs_onnxruntime for row in found] == [3.0, 1.0, None]


@pytest.mark.parametrize("page", ["", BEGIN, f"{END}\n{BEGIN}"])
def test_a_page_without_a_place_for_the_table_is_refused(page: str) -> None:
    message = f"^table of targets: expected a place between {BEGIN} and {END}, got none$"
    with pytest.raises(ValueError, match=message):
        with_table(page, "targets", ["new"])


def test_our_own_page_has_a_place_for_each_table() -> None:
    page = (ROOT / "bench" / "targets.md").read_text(encoding="utf-8")
    for name in ("targets on znver5", "networks on znver5", "targets on rocketlake", "networks on rocketlake"):
        assert "| new |" in with_table(page, name, ["| new |"])


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(1.234, "x", "1.23x"), (12.34, "x", "12.3x"), (123.4, "GF", "123 GF"), (0.8, "%", "80 %"), (1.5, "us", "1.50 us")],
)
def test_numbers_have_three_digits_and_a_unit(value: float, unit: str, text: str) -> None:
    assert show(value, unit) == text


@pytest.mark.slow
def test_plots_are_the_same_every_time_and_small(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    result_with(5.0).write(path)
    for folder in ("a", "b"):
        plots.main(path, tmp_path / folder, "svg")
    for name in plots.PLOTS:
        first, second = ((tmp_path / folder / f"{name}.svg").read_bytes() for folder in ("a", "b"))
        assert first == second
        assert len(first) < 200_000
        assert ElementTree.fromstring(first).tag.endswith("svg")
