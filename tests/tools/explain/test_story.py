"""The story of a model: layers that are alike are one line of many, and names lose what all of them have."""

from dataclasses import replace

from redpebble.dialect.reports.layer_report import LayerReport
from redpebble.kernels.machine import Machine
from redpebble.tools.explain.story import dense_gflops, layer_times, short_names


def layer(name: str, inputs: int = 8, measured: float | None = None) -> LayerReport:
    return LayerReport(
        name=name,
        inputs=inputs,
        outputs=4,
        connections=6,
        density=0.2,
        format="csc",
        kernel="count_blocks",
        reason="",
        families={"1": "count_blocks", "8": "count_blocks"},
        predicted_us={"1": 1.0, "8": 2.0},
        measured_us={} if measured is None else {"1": measured, "8": 2 * measured},
        predicted_bytes={},
        at_most=(),
        fewest_reads=None,
        most_reads=None,
        fewest_writes=None,
        most_writes=None,
        structure="",
    )


def test_a_layer_takes_the_time_of_the_tiles_that_its_rows_are_cut_into() -> None:
    (one,) = layer_times([layer("fc", measured=1.5)], [16])
    assert (one.predicted_us, one.measured_us, one.rows) == (4.0, 6.0, 16)
    assert one.microseconds == 6.0
    assert one.operations == 2 * 6 * 16
    assert one.moved_bytes == 6 * 6 + 4 * 16 * (8 + 4)


def test_layers_without_a_clock_have_predicted_times_alone() -> None:
    (one,) = layer_times([layer("fc")], [1])
    assert (one.measured_us, one.microseconds) == (None, 1.0)


def test_many_layers_that_differ_by_a_number_in_their_name_are_one_line() -> None:
    names = [f"encoder.{place}.{part}" for place in range(10) for part in ("query", "output")]
    layers = [layer(name, 8 if "query" in name else 16, 1.0) for name in names]
    times = layer_times(layers, [1] * 20)
    assert [(one.name, one.count, one.inputs, one.predicted_us) for one in times] == [
        ("*.query", 10, 8, 10.0),
        ("*.output", 10, 16, 10.0),
    ]
    assert times[0].full_name == "encoder.0.query and 9 more"
    few = layer_times(layers[:4], [1] * 4)
    assert [one.name for one in few] == ["0.query", "0.output", "1.query", "1.output"]


def test_names_lose_the_parts_that_all_of_them_begin_and_end_with() -> None:
    assert short_names(["/net/a/b/MatMul", "/net/c/MatMul"]) == ["a/b", "c"]
    assert short_names(["/layers.0/Gemm", "/layers.1/Gemm"]) == ["layers.0", "layers.1"]
    assert short_names(["/0/Gemm", "/1/Gemm"]) == ["/0/Gemm", "/1/Gemm"]
    assert short_names(["fc", "fc"]) == ["fc", "fc"]
    assert short_names(["/only/one"]) == ["/only/one"]


def test_the_roof_of_dense_kernels_is_higher_with_wider_vectors() -> None:
    assert 0 < dense_gflops(Machine(lanes=4)) < dense_gflops(Machine(lanes=16))


def test_tiles_that_were_measured_say_what_rows_take() -> None:
    one = replace(layer("a"), predicted_us={"1": 1.0, "2": 1.5, "64": 9.0}, measured_us={"1": 2.0, "64": 11.0})
    assert [layer_times([one], [rows])[0].measured_us for rows in (1, 2, 128)] == [2.0, None, 22.0]


def test_layers_that_stay_with_the_runtime_are_no_line_of_ours() -> None:
    first, second = layer_times([layer("a"), layer("b")], [1, 1], {"b"})
    assert (first.stays, second.stays) == (False, True)
