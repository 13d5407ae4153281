"""The benchmark of convolutions: pruned networks on images in onnxruntime, with our kernels and without.

`python -m redpebble.bench.convolution_bench [NAME ...] [--seconds S] [-o rows.json]` prints two tables:
networks, as torch's exporter wrote them, with random weights of which a share is zero in each layer but the stem and
depthwise ones, or over all layers together; ours on two threads beside ours on one, and what a loop that needs no
memory gains by the second thread; single layers between others. Sessions take turns in one process, and no time of a
wrong result is shown. A name is an export, or `layers`.
"""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np
import onnx
import onnx_ir
import typer
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble

from ..foundation.atomic_files import write_text
from ..models.exports.stored import COLOURS, random_feeds, stored_export
from ..models.pruned_weights import magnitude_mask
from ..verification.measuring import Budget, Call, Timing, interleave
from .results.page_tables import PageTable, Write
from .suites.real_networks import Sessions, check_results

TIMES: Final = ("onnxruntime ms", "ours ms", "x", "fastest", "wanted", "2 threads (loop)", "bytes")
NETWORKS: Final = PageTable("networks with convolutions", ("network", "zeros", "batch", *TIMES))
SINGLE: Final = PageTable(
    "layers with convolutions", ("layer", "image", "onnxruntime us", "ours us", "x", "GF", "wanted")
)

CALLS_IN_A_ROW: Final = 8
LAYERS: Final = "layers"
SHALLOW, DEEP = 2, 10
"""Layers of two networks: what the deeper one takes longer is the time of layers between others."""


LOOP: Final = (1000, 20_000)
"""Passes of a loop that needs no memory, and numbers of each: milliseconds, out of a first-level cache or two."""

ALONE, TWICE = "loop", "loop twice"


class Case(NamedTuple):
    """A network, its share of zeros, and how many times as fast as onnxruntime it should be."""

    export: str
    sparsity: float
    batch: int
    wanted: float | None
    layerwise: bool = True
    """Whether each layer has this share, instead of all together."""


CASES: Final = (
    Case("resnet_50", 0.9, 1, 3.0),
    Case("resnet_50", 0.9, 8, 3.2),
    Case("resnet_50", 0.95, 1, 4.2),
    Case("resnet_50", 0.9, 1, None, layerwise=False),
    Case("resnet_18", 0.9, 1, 2.8),
    Case("resnet_18", 0.9, 1, None, layerwise=False),
    Case("mobilenet_v1", 0.9, 1, 1.8),
    Case("yolov5s_320", 0.9, 1, 2.2),
    Case("yolov5s_640", 0.9, 1, 2.2),
    Case("mobilenet_v2", 0.9, 1, 0.97),
    Case("efficientnet_b0", 0.9, 1, 0.97),
)


@dataclass(frozen=True)
class Measured:
    """Medians of a network in us on one thread, what a second one gains, and the bytes of both files."""

    export: str
    sparsity: float
    batch: int
    wanted: float | None
    layerwise: bool
    original_us: float
    ours_us: float
    fastest: float
    """The ratio of the fastest rounds."""
    threads: float
    """Speed of ours on two threads over that on one, in the fastest rounds of several calls one after the other."""
    cores: float
    """The same of a loop that needs no memory."""
    original_bytes: int
    our_bytes: int

    @property
    def ratio(self) -> float:
        """Speed, in times of onnxruntime's."""
        return self.original_us / self.ours_us


class LayerCase(NamedTuple):
    """A layer of as many outputs as inputs: its channels, the side of its images and of its window, its GF wanted."""

    channels: int
    side: int
    window: int
    wanted: float


LAYER_CASES: Final = tuple(
    LayerCase(channels, side, window, wanted)
    for window, wanted in ((1, 95.0), (3, 90.0))
    for channels, side in ((64, 56), (128, 28), (256, 14), (512, 7))
)


@dataclass(frozen=True)
class MeasuredLayer:
    """A layer between others: microseconds of onnxruntime's dense one and of ours, at 90 % zeros."""

    channels: int
    side: int
    window: int
    wanted: float
    original_us: float
    ours_us: float
    gigaflops: float
    """The rate of ours: two for each connection and pixel."""


def pruned(case: Case) -> onnx.ModelProto:
    """Return the network of a case: zeros in each layer, or those of smallest magnitude of all layers together."""
    name = f"{case.export}.dynamo"
    if case.layerwise:
        return stored_export(name, case.sparsity)
    model = stored_export(name, 0.0)
    read = {node.input[1] for node in model.graph.node if node.op_type == "Conv"}
    tensors = [one for one in model.graph.initializer if one.name in read and one.dims[1] > COLOURS]
    arrays = [numpy_helper.to_array(tensor) for tensor in tensors]
    kept = magnitude_mask(np.concatenate([array.reshape(-1) for array in arrays]), case.sparsity)
    start = 0
    for tensor, array in zip(tensors, arrays, strict=True):
        tensor.raw_data = (array * kept[start : start + array.size].reshape(array.shape)).tobytes()
        start += array.size
    return model


def measure(case: Case, seconds: float) -> Measured:
    """Return the row of a network.

    Raises:
        ValueError: a result differs from onnxruntime's.
    """
    proto = pruned(case)
    optimized = redpebble.optimize(proto, target="ort").model
    one = Sessions.of(proto, 1, optimized)
    free = {dim.dim_param for value in proto.graph.input for dim in value.type.tensor_type.shape.dim}
    feeds = random_feeds(proto, dict.fromkeys(free, case.batch))
    check_results(case.export, *(session.run(None, feeds) for session in (one.original, one.ours)))
    sessions = {"original": one.original, "ours": one.ours}
    times = interleave({name: partial(session.run, None, feeds) for name, session in sessions.items()}, Budget(seconds))
    original, ours = times["original"], times["ours"]
    two = Sessions.of(proto, 2, optimized).ours
    check_results(case.export, *(session.run(None, feeds) for session in (one.original, two)))
    gains = _gains_of_two({"ours": partial(one.ours.run, None, feeds), "two": partial(two.run, None, feeds)}, seconds)
    sizes = proto.ByteSize(), onnx_ir.to_proto(optimized).ByteSize()
    return Measured(*case, original.median_us, ours.median_us, original.min_us / ours.min_us, *gains, *sizes)


def _gains_of_two(calls: Mapping[str, Call], seconds: float) -> tuple[float, float]:
    """Return the gain of a second thread for our network, and for a loop; the first calls wake the cores."""
    rows = {name: partial(_in_a_row, call) for name, call in {**calls, **core_calls()}.items()}
    least = {name: timing.min_us for name, timing in interleave(rows, Budget(seconds)).items()}
    return least["ours"] / least["two"], 2 * least[ALONE] / least[TWICE]


def core_calls() -> dict[str, Call]:
    """Return a call of a loop that needs no memory, and one that runs it on two threads at once."""
    passes, count = LOOP
    pool, arrays = ThreadPoolExecutor(2), [np.ones((2, count), np.float32) for _ in range(2)]

    def alone(array: NDArray[np.float32] = arrays[0]) -> None:
        for _ in range(passes):
            np.arctan(array[0], out=array[1])

    return {ALONE: alone, TWICE: lambda: wait([pool.submit(alone, array) for array in arrays])}


def _in_a_row(call: Call) -> None:
    for _ in range(CALLS_IN_A_ROW):
        call()


def chain_of(case: LayerCase, layers: int, rng: np.random.Generator) -> onnx.ModelProto:
    """Return a network of equal layers, 90 % zeros, with a Relu behind each."""
    nodes: list[onnx.NodeProto] = []
    tensors: list[TensorProto] = []
    shape, x = (case.channels, case.channels, case.window, case.window), "x0"
    for index in range(layers):
        weight = rng.standard_normal(shape, dtype=np.float32) * np.float32((0.05 * np.prod(shape[1:])) ** -0.5)
        tensors.append(numpy_helper.from_array(weight * magnitude_mask(weight, 0.9), f"w{index}"))
        pads, y = [case.window // 2] * 4, f"x{index + 1}"
        nodes.append(helper.make_node("Conv", [x, f"w{index}"], [f"c{index}"], name=f"conv{index}", pads=pads))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [y]))
        x = y
    sizes = ["batch", case.channels, case.side, case.side]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name in ("x0", x)]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measure_layer(case: LayerCase, seconds: float) -> MeasuredLayer:
    """Return the row of a layer.

    Raises:
        ValueError: a result differs from onnxruntime's.
    """
    rng = np.random.default_rng(0)
    calls: dict[tuple[str, int], Call] = {}
    for layers in (SHALLOW, DEEP):
        proto = chain_of(case, layers, rng)
        sessions, feeds = Sessions.of(proto, 1), random_feeds(proto, {"batch": 1})
        check_results(f"{case}", *(session.run(None, feeds) for session in sessions))
        for name, session in sessions._asdict().items():
            calls[name, layers] = partial(session.run, None, feeds)
    times = interleave(calls, Budget(seconds))
    original, ours = (_between(times, name) for name in ("original", "ours"))
    connections = round(0.1 * case.channels**2 * case.window**2)
    return MeasuredLayer(*case, original, ours, 2e-3 * connections * case.side**2 / ours)


def _between(times: dict[tuple[str, int], Timing], name: str) -> float:
    return (times[name, DEEP].median_us - times[name, SHALLOW].median_us) / (DEEP - SHALLOW)


def network_cells(row: Measured) -> tuple[object, ...]:
    """Return the row of a network."""
    zeros = f"{row.sparsity:.0%} {'each' if row.layerwise else 'of all'}"
    wanted = "-" if row.wanted is None else f"{row.wanted:g}"
    speeds = f"{row.ratio:.2f}", f"{row.fastest:.2f}", wanted, f"{row.threads:.2f} ({row.cores:.2f})"
    times = f"{row.original_us / 1e3:.2f}", f"{row.ours_us / 1e3:.2f}"
    return row.export, zeros, row.batch, *times, *speeds, f"{row.our_bytes / row.original_bytes:.2f}"


def layer_cells(row: MeasuredLayer) -> tuple[object, ...]:
    """Return the row of a single layer."""
    times = f"{row.original_us:.0f}", f"{row.ours_us:.0f}", f"{row.original_us / row.ours_us:.2f}"
    layer = f"{row.window}x{row.window}, {row.channels}"
    return layer, f"{row.side}x{row.side}", *times, f"{row.gigaflops:.0f}", f"{row.wanted:g}"


def _chosen(names: list[str] | None) -> Iterator[Case | LayerCase]:
    known = {*(case.export for case in CASES), LAYERS}
    unknown = sorted({*(names or ())} - known)
    if unknown:
        raise typer.BadParameter(f"network: expected one of {', '.join(sorted(known))}, got {unknown[0]!r}")
    yield from (case for case in CASES if not names or case.export in names)
    yield from (LAYER_CASES if not names or LAYERS in names else ())


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Exports to measure, or `layers`; else all.")] = None,
    *,
    seconds: Annotated[float, typer.Option(help="Measuring time for each row.")] = 3.0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the rows as JSON, too.")] = None,
    write: Write = False,
) -> None:
    """Measure convolutions and print the tables."""
    cases, networks, layers = list(_chosen(names)), list[Measured](), list[MeasuredLayer]()
    of_networks = [case for case in cases if isinstance(case, Case)]
    if of_networks:
        with NETWORKS.rows(write=write) as add:
            for case in of_networks:
                networks.append(measure(case, seconds))
                add(*network_cells(networks[-1]))
    if len(of_networks) < len(cases):
        with SINGLE.rows(write=write) as add:
            for case in cases:
                if isinstance(case, LayerCase):
                    layers.append(measure_layer(case, seconds))
                    add(*layer_cells(layers[-1]))
    if output is not None:
        content = {"networks": [*map(asdict, networks)], "layers": [*map(asdict, layers)]}
        write_text(output, json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
