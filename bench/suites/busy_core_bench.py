"""Two threads beside one, on free cores and while another program takes one of them.

`python -m redpebble.bench.suites.busy_core_bench [--hosts HOSTS] [--seconds 1] [--write]`. A child of this
process, tied to a core, is the other program; it is stopped while cores are to be free. Times are means over turns of a
tenth of a second or more, in which the system shares the core many times: medians would leave out calls that waited.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import typer
from onnx import helper

import redpebble

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
    ("network", "rows", "called by", "one thread us", "two, free cores", "two, one core taken"),
    Path("bench/targets.md"),
)

SPIN: Final = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


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
    """The mean time of a call on one thread, and how much faster two threads are on free cores; then the time that they
    take while one core is taken, over that of one thread meanwhile."""

    one_us: float
    free: float
    taken: float


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
    with subprocess.Popen([sys.executable, "-c", SPIN, str(cpu)]) as process:
        process.send_signal(signal.SIGSTOP)
        try:
            yield process.send_signal
        finally:
            process.kill()


def ratios(calls: Mapping[int, Call], seconds: float, send: Callable[[signal.Signals], None]) -> Ratios:
    """Return the times of calls on one and two threads, without and with another program."""
    free = throughputs(calls, 1, seconds)
    send(signal.SIGCONT)
    taken = throughputs(calls, 1, seconds)
    send(signal.SIGSTOP)
    return Ratios(1e6 / free[1], free[2] / free[1], taken[1] / taken[2])


def _feeds(path: Path, rows: int) -> Feeds:
    width = onnx.load_from_string(path.read_bytes()).graph.input[0].type.tensor_type.shape.dim[1].dim_value
    return {"x": np.random.default_rng(rows).standard_normal((rows, width), dtype=np.float32)}


def main(
    hosts: Annotated[str, typer.Option(help=f"Who calls: {', '.join(HOSTS)}.")] = ",".join(HOSTS),
    only: Annotated[str, typer.Option(help="Networks whose name has this in it.")] = "",
    seconds: Annotated[float, typer.Option(help="Time for each case with free cores, and with one taken.")] = 1.0,
    *,
    write: Write = False,
) -> None:
    """Print the time of one thread, how much faster two are on free cores, and their time while one core is taken."""
    cpu, wanted = max(os.sched_getaffinity(0)), [case for case in cases() if only in case.name]
    with TABLE.rows(write=write) as add, tempfile.TemporaryDirectory() as folder, other_program(cpu) as send:
        for case, host in ((one, host) for one in wanted for host in one.hosts if host in hosts.split(",")):
            path = Path(folder) / "network.onnx"
            case.save(path)
            load = HOSTS[host](path)
            for rows in case.rows:
                feeds = _feeds(path, rows)
                found = ratios({threads: load(feeds, threads) for threads in THREADS}, seconds, send)
                texts = (f"{found.one_us:.0f}", f"{found.free:.2f}x faster", f"{found.taken:.2f}x of one")
                add(case.name, rows, host, *texts)


if __name__ == "__main__":
    typer.run(main)
