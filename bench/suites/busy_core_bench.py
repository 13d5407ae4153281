"""Two threads beside one, on free cores and while another program takes one of them.

`python -m redpebble.bench.suites.busy_core_bench [--hosts HOSTS] [--seconds 1] [--runs FILE] [--write]`. A child of
this process, tied to a core, is the other program; it is stopped while cores are to be free. Times are means over turns
in which the system shares the core many times: medians of calls would leave out those that waited. What is printed are
medians of the runs that FILE has, or of the rounds of this one.

Cores of a virtual machine may be halves of cores whose other halves others use, now and then. So what two cores do over
what one does is measured as well: by two threads of Python that call a layer each, on one thread.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Final, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import typer
from onnx import helper

import redpebble

from ...foundation.atomic_files import write_text
from ...models.zoo import build, save
from ...ort.sized_session import prepare_for
from ...tools.benching.engines.engines import ENGINES, Feeds
from ...tools.benching.engines.loaded import Loaded
from ...tools.benching.layer_cases import RandomLayer
from ...verification.measuring import Call, throughputs
from ...verification.oracle import session_options
from ..results.page_tables import PageTable, Write
from .few_bits_bench import FewBitsLayer

THREADS: Final = (1, 2)

NO_SPINNING: Final = "session.intra_op.allow_spinning", "0"
"""The entry of a session's options by which onnxruntime's threads sleep as soon as they wait."""

TABLE: Final = PageTable(
    "two threads",
    ("network", "rows", "called by", "one thread us", "two, free cores", "two cores", "two, one core taken", "runs"),
    Path("bench/targets.md"),
)

PROBE_ROWS: Final = 128
"""Rows of the calls by which two cores are held against one: long ones, beside which Python's lock takes little."""

SPIN: Final = """import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
while os.getppid() == int(sys.argv[2]):
    for _ in range(10_000): pass
"""
"""A program that keeps a core busy until its parent is gone."""


def _without_spinning(path: Path) -> Loaded:
    def call(feeds: Feeds, threads: int) -> Call:
        options = session_options(threads)
        options.add_session_config_entry(*NO_SPINNING)
        made = redpebble.session(path, options)
        prepare_for(made, feeds)
        return partial(made.run, None, dict(feeds))

    return call


HOSTS: Final[Mapping[str, Callable[[Path], Loaded]]] = {
    "compile": ENGINES["native"].load,
    "session": ENGINES["session"].load,
    "session without spinning": _without_spinning,
}


class Case(NamedTuple):
    """A network, the rows of its calls, and how it is written to a file."""

    name: str
    rows: Sequence[int]
    save: Callable[[Path], None]
    hosts: Collection[str] = HOSTS


class Ratios(NamedTuple):
    """The mean time of a call on one thread, and how much faster two threads are on free cores; what two cores did over
    one meanwhile; then the time of two threads while one core is taken, over that of one thread meanwhile."""

    one_us: float
    free: float
    cores: float
    taken: float


Key = tuple[str, int, str]
"""Network, rows, host."""


class Runs:
    """The ratios of each network and host, in this run and in those before that a file has."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._found: dict[Key, list[Ratios]] = {}
        if file is not None and file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                name, rows, host, *numbers = json.loads(line)
                self._found.setdefault((name, rows, host), []).append(Ratios(*numbers))

    def add(self, key: Key, found: Ratios) -> None:
        """Add what was measured."""
        self._found.setdefault(key, []).append(found)
        if self._file is not None:
            lines = [json.dumps([*key, *one]) for key, runs in self._found.items() for one in runs]
            write_text(self._file, "\n".join([*lines, ""]))

    def cells(self, key: Key) -> Sequence[object]:
        """Return the cells of a row of the table: medians."""
        runs = self._found[key]
        one_us, *others = (median(values) for values in zip(*runs, strict=True))
        free, cores, taken = (f"{ratio:.2f}" for ratio in others)
        return *key, f"{one_us:.0f}", f"{free}x faster", f"{cores}x", f"{taken}x of one", len(runs)

    def __contains__(self, key: Key) -> bool:
        return key in self._found


def cases() -> Iterator[Case]:
    """Yield the layers and networks of the table."""
    for sparsity in (0.8, 0.9):
        layer = RandomLayer(768, 768, sparsity)
        yield Case(layer.name, (1, 8, 32, 128), partial(_save_layer, layer))
    for density in (0.2, 0.1):
        spec = f"ffnn(depth=4, width=1024, density={density:g})"
        yield Case(f"4x1024@{1 - density:g}", (256,), partial(_save_model, partial(build, spec)))
    yield Case("step of a decoder, four bits", (1,), _save_step, (*HOSTS,)[1:])


def _save_layer(layer: RandomLayer, path: Path) -> None:
    layer.save(path.parent).rename(path)


def _save_model(make: Callable[[], ir.Model], path: Path) -> None:
    save(make(), path)


def _save_step(path: Path) -> None:
    """Write the layers of four blocks of a small decoder one after the other, half of the weights zeros."""
    nodes: list[onnx.NodeProto] = []
    tensors: list[onnx.TensorProto] = []
    last = "x"
    for number, (inputs, outputs) in enumerate([(576, 576), (576, 1536), (1536, 576)] * 4):
        model = FewBitsLayer(inputs, outputs, "0.5", 4).model(number)
        (node,) = model.graph.node
        names = {name: f"{name}{number}" for name in ("codes", "scales", "y")} | {"x": last}
        node.name = f"layer{number}"
        node.input[:] = [names[name] for name in node.input]
        node.output[:] = [last := names["y"]]
        nodes.append(node)
        for tensor in model.graph.initializer:
            tensor.name = names[tensor.name]
            tensors.append(tensor)
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", 576]) for name in ("x", last))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "step", [x], [y], tensors)
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


@contextmanager
def other_program(cpu: int) -> Generator[Callable[[signal.Signals], None]]:
    """Start a program that keeps a core busy, stopped at first; yields what sends it a signal."""
    with subprocess.Popen([sys.executable, "-c", SPIN, str(cpu), str(os.getpid())]) as process:
        process.send_signal(signal.SIGSTOP)
        try:
            yield process.send_signal
        finally:
            process.kill()


def ratios(
    calls: Mapping[int, Call], probes: Sequence[Call], seconds: float, send: Callable[[signal.Signals], None]
) -> Ratios:
    """Return the times of calls on one and two threads, without and with another program."""
    free = throughputs(calls, 1, seconds)
    cores = _rate_of_both(probes, seconds) / throughputs({0: probes[0]}, 1, seconds / 4)[0]
    send(signal.SIGCONT)
    taken = throughputs(calls, 1, seconds)
    send(signal.SIGSTOP)
    return Ratios(1e6 / free[1], free[2] / free[1], cores, taken[1] / taken[2])


def _rate_of_both(probes: Sequence[Call], seconds: float) -> float:
    """Return the calls a second of two threads of Python, which call a probe each."""
    left, turn = [*probes], threading.local()

    def call() -> None:
        if not hasattr(turn, "probe"):
            turn.probe = left.pop()
        turn.probe()

    return throughputs({0: call}, len(probes), seconds / 4)[0]


def _feeds(path: Path, rows: int) -> Feeds:
    width = onnx.load_from_string(path.read_bytes()).graph.input[0].type.tensor_type.shape.dim[1].dim_value
    return {"x": np.random.default_rng(rows).standard_normal((rows, width), dtype=np.float32)}


def main(
    hosts: Annotated[str, typer.Option(help=f"Who calls: {', '.join(HOSTS)}.")] = ",".join(HOSTS),
    only: Annotated[str, typer.Option(help="Networks whose name has this in it.")] = "",
    seconds: Annotated[float, typer.Option(help="Time for each case with free cores, and with one taken.")] = 1.0,
    rounds: Annotated[int, typer.Option(help="Rounds, each of all cases.")] = 1,
    runs: Annotated[
        Path | None, typer.Option(help="File to which runs are added; all of its cases are printed.")
    ] = None,
    *,
    write: Write = False,
) -> None:
    """Print the time of one thread, how much faster two are on free cores, and their time while one core is taken."""
    cpu, wanted, found = max(os.sched_getaffinity(0)), [case for case in cases() if only in case.name], Runs(runs)
    with tempfile.TemporaryDirectory() as folder, other_program(cpu) as send:
        probes = _load(next(cases()), PROBE_ROWS, "compile", Path(folder), (1, 1))
        loaded = {
            (case.name, rows, host): _load(case, rows, host, Path(folder))
            for case in wanted
            for host in case.hosts
            if host in hosts.split(",")
            for rows in case.rows
        }
        for _ in range(rounds):
            for key, calls in loaded.items():
                found.add(key, ratios(dict(zip(THREADS, calls, strict=True)), probes, seconds, send))
    with TABLE.rows(write=write) as add:
        for case in cases():
            for key in ((case.name, rows, host) for host in case.hosts for rows in case.rows):
                if key in found:
                    add(*found.cells(key))


def _load(case: Case, rows: int, host: str, folder: Path, threads: Sequence[int] = THREADS) -> list[Call]:
    """Return a call on each of so many threads."""
    path = folder / "network.onnx"
    case.save(path)
    load, feeds = HOSTS[host](path), _feeds(path, rows)
    return [load(feeds, count) for count in threads]


if __name__ == "__main__":
    typer.run(main)
