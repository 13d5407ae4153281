"""Targets of floats: beside other engines, and beside what the machine's multiply-adds and caches allow.

`python -m redpebble.bench.suites.speed_targets [CASES ...] [--deepsparse PYTHON] [--openvino PYTHON] [--write]`
measures some cases, all by default, and adds them to build/speed_targets.json; `--write` puts all that this file has
into the page. So a machine that is quiet for a minute at a time is enough. One thread unless a case says otherwise, the
fastest rounds of engines in turn, as others use the machine; what needs another Python is left out where that is not
given.
"""

import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final, NamedTuple

import numpy as np
import onnx
import onnxruntime
import typer

import redpebble

from ...kernels.families import FAMILIES
from ...models.exports.stored import random_feeds, stored_export
from ...tools.benching.engines.loaded import Feeds
from ...tools.benching.engines.own_process import OwnProcess
from ...verification.measuring import Budget, Call, Timing, interleave
from ..ceilings import NativeLoops
from ..kernel_call import OurKernel
from ..library_bench import one_thread, sessions
from ..results.page_tables import PageTable, Write
from .peers_bench import CASES, FEW, Case, Python, chosen_of, layer

TARGETS: Final = PageTable("targets of speed", ("case", "wanted", "reached", "verdict"), Path("bench/targets.md"))
FILE: Final = Path("build/speed_targets.json")

ENCODER: Final = "minilm_size.classic"
LAST_FEW: Final = 24
"""Rows up to which a batch is small."""

Values = Mapping[str, list[float]]
Pythons = Mapping[str, str | None]


class Target(NamedTuple):
    """A case and the numbers that are wanted of it, at least or at most, and their unit."""

    case: str
    wanted: tuple[float, ...]
    at_least: bool = True
    unit: str = "x"

    def row(self, reached: list[float] | None) -> tuple[str, str, str, str]:
        """Return the cells of its row."""
        sign = "at least" if self.at_least else "at most"
        wanted = f"{sign} {self._text(self.wanted)}"
        if reached is None:
            return self.case, wanted, "", "not measured"
        met = all(
            (round(one, 2) >= goal) if self.at_least else (round(one, 2) <= goal)
            for one, goal in zip(reached, self.wanted, strict=True)
        )
        return self.case, wanted, self._text(reached), "met" if met else "missed"

    def _text(self, values: tuple[float, ...] | list[float]) -> str:
        return f"{' / '.join(f'{value:.2f}' for value in values)} {self.unit}".replace(" x", "x")


TARGETS_OF: Final[Mapping[str, tuple[Target, ...]]] = {
    "layers": (
        Target("128 rows over onnxruntime, .8 / .9 / .95", (3.3, 6.2, 10.5)),
        Target("the same over DeepSparse", (1.8, 1.9, 2.2)),
    ),
    "networks": (Target("4 layers of 1024, 256 rows at .8 / .9, 1024 at .95", (4, 7, 12)),),
    "few": (
        Target("2 to 24 rows, the least, .8 / .9", (2.4, 4.2)),
        Target("12 / 20 / 24 / 48 rows over the line between powers of two, .8", (1.1,) * 4, False),
        Target("the same at .9", (1.1,) * 4, False),
    ),
    "one": (
        Target("one row over onnxruntime, .8 / .9", (7, 13)),
        Target("a call without work above onnxruntime's", (1.5,), False, "us"),
    ),
    "beyond": (
        Target("one row of 4096x4096 at .9, bf16 over f32", (1.7,)),
        Target("its bytes a connection", (3,), False, "bytes"),
    ),
    "large": (Target("4096x4096 at .9, 8 rows: share of the time of 32", (0.45,), False),),
    "avx2": (
        Target("AVX2, one row over the generic level", (2,)),
        Target("AVX2, MiniLM's layers at .9 over DeepSparse's AVX2", (1.4,)),
    ),
    "sequences": (Target("512 / 2048 tokens of MiniLM at .9 over onnxruntime", (4, 2.8)),),
    "dense": (
        Target("a dense layer of 4096 behind a sparse one, 8 / 32 / 128 rows, over OpenVINO", (0.95,) * 3),
        Target("the same layer by our dense kernel", (0.95,) * 3),
    ),
    "peak": (Target("128 rows at .8, the kernel's share of multiply-adds from registers", (0.65,)),),
}


def on(threads: int) -> onnxruntime.SessionOptions:
    """Return the options of a session on so many threads, which do not spin."""
    options = one_thread()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def rows_of(case: Case, rows: int) -> Feeds:
    """Return an input of so many rows."""
    return {"x": np.random.default_rng(rows).standard_normal((rows, case.widths[0]), dtype=np.float32)}


def in_sessions(case: Case, counts: tuple[int, ...], seconds: float) -> dict[tuple[str, int], Timing]:
    """Return the times of our session and of onnxruntime's at each number of rows, all in the same rounds."""
    with TemporaryDirectory() as folder:
        path = str(case.save(Path(folder)))
        made = {"ours": redpebble.session(path, on(1)), "theirs": onnxruntime.InferenceSession(path, on(1))}
    keys = [(name, rows) for rows in counts for name in made]
    return interleave({key: partial(made[key[0]].run, None, rows_of(case, key[1])) for key in keys}, Budget(seconds))


def over_onnxruntime(case: Case, rows: int, seconds: float) -> float:
    """Return how many times as fast our session is."""
    times = in_sessions(case, (rows,), seconds)
    return times["theirs", rows].min_us / times["ours", rows].min_us


def over_peer(path: Path, feeds: Feeds, engine: str, python: str, seconds: float) -> float:
    """Return how many times as fast our session is as an engine, each in a process of its own."""
    pythons = {"session": sys.executable, engine: python}
    calls: dict[str, Call] = {name: OwnProcess(name, of).load(path)(feeds, 1) for name, of in pythons.items()}
    times = interleave(calls, Budget(seconds))
    return times[engine].min_us / times["session"].min_us


def layers(seconds: float, pythons: Pythons) -> Iterator[tuple[int, list[float]]]:
    """Geometric means over shapes."""
    by_zeros: dict[float, list[Case]] = {}
    for case in CASES["layers"]:
        by_zeros.setdefault(case.sparsities[0], []).append(case)
    yield (
        0,
        [
            statistics.geometric_mean([over_onnxruntime(case, 128, seconds) for case in cases])
            for cases in by_zeros.values()
        ],
    )
    if python := pythons["deepsparse"]:
        yield (
            1,
            [
                statistics.geometric_mean([_saved(case, 128, "deepsparse", python, seconds) for case in cases])
                for cases in by_zeros.values()
            ],
        )


def _saved(case: Case, rows: int, engine: str, python: str, seconds: float) -> float:
    with TemporaryDirectory() as folder:
        return over_peer(case.save(Path(folder)), rows_of(case, rows), engine, python, seconds)


def networks(seconds: float, pythons: Pythons) -> Iterator[tuple[int, list[float]]]:
    """Networks over onnxruntime."""
    del pythons
    yield 0, [over_onnxruntime(case, rows, seconds) for case in CASES["networks"] for rows in case.rows]


def few(seconds: float, pythons: Pythons) -> Iterator[tuple[int, list[float]]]:
    """The least ratio, and how far counts between powers of two lie above the line."""
    del pythons
    least: list[float] = []
    for place, case in enumerate(CASES["few"]):
        times = in_sessions(case, FEW, seconds * len(FEW))
        us = {rows: times["ours", rows].min_us for rows in FEW}
        least.append(min(times["theirs", rows].min_us / us[rows] for rows in FEW if rows <= LAST_FEW))
        yield place + 1, [_above_line(us, rows) for rows in (12, 20, 24, 48)]
    yield 0, least


def _above_line(us: Mapping[int, float], rows: int) -> float:
    low = 1 << (rows.bit_length() - 1)
    return us[rows] / (us[low] + (us[2 * low] - us[low]) * (rows - low) / low)


def one(seconds: float, pythons: Pythons) -> Iterator[tuple[int, list[float]]]:
    """One row, and a layer of hardly any weights beside a node of onnxruntime that does as little."""
    del pythons
    yield 0, [over_onnxruntime(layer(768, 768, sparsity), 1, 4 * seconds) for sparsity in (0.8, 0.9)]
    case, value = layer(768, 768, 0.999), onnx.helper.make_tensor_value_info
    x, y = (value(name, onnx.TensorProto.FLOAT, ["batch", 768]) for name in "xy")
    node = onnx.helper.make_node("Neg", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "negative", [x], [y])
    opsets = [onnx.helper.make_opsetid("", 17)]
    empty = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    with TemporaryDirectory() as folder:
        ours = redpebble.session(str(case.save(Path(folder))), on(1))
    made = {"ours": ours, "theirs": onnxruntime.InferenceSession(empty, on(1))}
    times = interleave({name: partial(made[name].run, None, rows_of(case, 1)) for name in made}, Budget(4 * seconds))
    yield 1, [times["ours"].min_us - times["theirs"].min_us]


def beyond(seconds: float, pythons: Pythons) -> Iterator[tuple[int, list[float]]]:
    """One row of a layer whose weights leave the second level."""
    del pythons
    case = layer(4096, 4096, 0.9)
    with TemporaryDirectory() as folder:
        path = case.save(Path(folder))
        model = onnx.ModelProto.FromString(path.read_bytes())
        kernel = OurKernel(path)
    halves = redpebble.optimize(model, precision="bf16", rows=1)
    made = {"bf16": redpebble.compile(halves.proto), "f32": redpebble.compile(model)}
    times = interleave({name: made[name].bind(rows_of(case, 1)).run for name in made}, Budget(4 * seconds))
    yield 0, [times["f32"].min_us / times["bf16"].min_us]
    yield 1, [kernel.bytes_of(FAMILIES["lookup_halves"]) / kernel.weight.values.size]


def large(seconds: float, pythons: Pythons) -> Iterator[tuple[int, list[float]]]:
    """Eight rows beside 32."""
    del pythons
    times = in_sessions(layer(4096, 4096, 0.9), (8, 32), 2 * seconds)
    yield 0, [times["ours", 8].min_us / times["ours", 32].min_us]


def avx2(seconds: float, pythons: Pythons) -> Iterator[tuple[int, list[float]]]:
    """Code of the level AVX2, which libraries that are made ahead of time have."""
    case = layer(768, 768, 0.9)
    with TemporaryDirectory() as folder:
        model = onnx.ModelProto.FromString(case.save(Path(folder)).read_bytes())
        made = sessions(redpebble.optimize(model).proto, Path(folder, "layer.so"))
        feeds = rows_of(case, 1)
        times = interleave(
            {level: partial(made[level].run, None, feeds) for level in ("generic", "avx2")}, Budget(2 * seconds)
        )
        yield 0, [times["generic"].min_us / times["avx2"].min_us]
        if python := pythons["deepsparse"]:
            encoder = stored_export(ENCODER)
            feeds = dict(random_feeds(encoder, {"batch": 1, "sequence": 128}))
            path = Path(folder, "encoder.onnx")
            path.write_bytes(encoder.SerializeToString())
            os.environ["NM_ARCH"] = "avx2"
            theirs = OwnProcess("deepsparse", python).load(path)(feeds, 1)
            del os.environ["NM_ARCH"]
            ours = sessions(redpebble.optimize(encoder).proto, Path(folder, "encoder.so"))["avx2"]
            calls: dict[str, Call] = {"ours": partial(ours.run, None, feeds), "theirs": theirs}
            times = interleave(calls, Budget(4 * seconds))
            yield 1, [times["theirs"].min_us / times["ours"].min_us]


def sequences(seconds: float, pythons: Pythons) -> Iterator[tuple[int, list[float]]]:
    """An encoder of long sequences over onnxruntime."""
    del pythons
    encoder = with_positions(stored_export(ENCODER), 2048)
    made = {
        "ours": redpebble.session(encoder, on(1)),
        "theirs": onnxruntime.InferenceSession(encoder.SerializeToString(), on(1)),
    }
    ratios: list[float] = []
    for tokens in (512, 2048):
        feeds = dict(random_feeds(encoder, {"batch": 1, "sequence": tokens}))
        calls = {name: partial(session.run, None, feeds) for name, session in made.items()}
        times = interleave(calls, Budget(4 * seconds, least_rounds=5))
        ratios.append(times["theirs"].min_us / times["ours"].min_us)
    yield 0, ratios


def with_positions(encoder: onnx.ModelProto, count: int) -> onnx.ModelProto:
    """Return an encoder with so many positions, drawn again: an export has those of its model, 512."""
    (table,) = [one for one in encoder.graph.initializer if one.name.endswith("position_embeddings.weight")]
    before, rng = table.dims[0], np.random.default_rng(0)
    values = rng.standard_normal((count, table.dims[1]), np.float32) / 50
    table.CopyFrom(onnx.numpy_helper.from_array(values, table.name))
    for attribute in [one for node in encoder.graph.node if node.op_type == "Constant" for one in node.attribute]:
        if list(attribute.t.dims) == [1, before]:
            attribute.t.CopyFrom(onnx.numpy_helper.from_array(np.arange(count)[None], attribute.t.name))
    return encoder


def dense(seconds: float, pythons: Pythons) -> Iterator[tuple[int, list[float]]]:
    """A layer without zeros behind one with zeros, and the same layer by our kernel alone, over OpenVINO's in f32."""
    python = pythons["openvino"]
    if python is None:
        return
    both, alone = CASES["dense"]
    behind, by_ours = list[float](), list[float]()
    with TemporaryDirectory() as folder:
        paths = {case: case.save(Path(folder)) for case in (both, layer(4096, 4096, 0.9), alone)}
        compiled = redpebble.compile(paths[alone])
        for rows in both.rows:
            feeds = rows_of(both, rows)
            calls: dict[str, Call] = {
                case.name: OwnProcess("session", sys.executable).load(path)(feeds, 1)
                for case, path in paths.items()
                if case is not alone
            }
            whole, first = calls
            calls["ours"] = compiled.bind(feeds).run
            calls["theirs"] = OwnProcess("openvino", python).load(paths[alone])(feeds, 1)
            times = interleave(calls, Budget(4 * seconds))
            behind.append(times["theirs"].min_us / (times[whole].min_us - times[first].min_us))
            by_ours.append(times["theirs"].min_us / times["ours"].min_us)
    yield 0, behind
    yield 1, by_ours


def peak(seconds: float, pythons: Pythons) -> Iterator[tuple[int, list[float]]]:
    """Kernels alone, beside a loop that does nothing but multiply."""
    del pythons
    shares: list[float] = []
    for shape in ((768, 768), (1024, 1024), (768, 3072)):
        case, loop = layer(*shape, 0.8), NativeLoops().registers()
        with TemporaryDirectory() as folder:
            kernel = OurKernel(case.save(Path(folder)))
        x = np.random.default_rng(1).standard_normal((case.widths[0], 128), dtype=np.float32)
        times = interleave({"kernel": kernel.prepare(x).repeated(1), "peak": loop.call}, Budget(seconds))
        shares.append(128 * case.flops / times["kernel"].min_us / (loop.work / times["peak"].min_us))
    yield 0, [statistics.geometric_mean(shares)]


MEASURES: Final[Mapping[str, Callable[[float, Pythons], Iterator[tuple[int, list[float]]]]]] = {
    "layers": layers,
    "networks": networks,
    "few": few,
    "one": one,
    "beyond": beyond,
    "large": large,
    "avx2": avx2,
    "sequences": sequences,
    "dense": dense,
    "peak": peak,
}


def main(
    cases: Annotated[list[str] | None, typer.Argument(help=f"Some of {', '.join(MEASURES)}; default: all.")] = None,
    seconds: Annotated[float, typer.Option(help="Measuring time of a ratio.")] = 0.5,
    deepsparse: Python = None,
    openvino: Python = None,
    write: Write = False,
) -> None:
    """Measure, keep what was measured, and print or write the table.

    Raises:
        BadParameter: there is no such case.
    """
    known: dict[str, list[float]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for name in chosen_of(cases, MEASURES):
        for place, values in MEASURES[name](seconds, {"deepsparse": deepsparse, "openvino": openvino}):
            known[TARGETS_OF[name][place].case] = values
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(json.dumps(known, indent=1), encoding="utf-8")
    rows = [target.row(known.get(target.case)) for name in MEASURES for target in TARGETS_OF[name]]
    with TARGETS.rows(write=write) as add:
        for row in rows:
            add(*row)


if __name__ == "__main__":
    typer.run(main)
