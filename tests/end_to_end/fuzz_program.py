"""Random models through all ways into onnxruntime, random calls, and damaged files: a program, since it may crash.

`python tests/end_to_end/fuzz_program.py SECONDS SEED FOLDER` with the folders of tests on the path, which
`test_fuzzing.py` sees to. It says what it is about to do before it does it.
"""

import gc
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from hypothesis import HealthCheck, Phase, given, seed, settings
from numpy.typing import NDArray

import redpebble
from redpebble.frontend.import_model import import_model
from redpebble.options import Options
from redpebble.ort.provider.networks import Found
from redpebble.ort.provider.register import SparseNetworkCompiler, found_networks, host, minor_version, register
from redpebble.pipeline import run_stages
from redpebble.runtime.store.cache import default_folder
from tests.end_to_end.agreement import assert_close_for_float32
from tests.end_to_end.random_graphs import DrawnModel, models
from tests.support.sparse_network_models import network_nodes, prefer_sparse_kernels, with_networks

EXAMPLES = 10
"""Models of one seed; after each seed the clock is looked at."""

Feeds = Mapping[str, NDArray[Any]]
Session = onnxruntime.InferenceSession


class Eager(SparseNetworkCompiler):
    """A compiler that takes every sparse layer, however small: none of these would gain."""

    def networks(self, model: ir.Model) -> list[Found]:
        imported = import_model(model, foreign="keep")
        module = imported.module
        run_stages(module, Options("optimize"), until="choose")
        prefer_sparse_kernels(module)
        run_stages(module, Options("optimize"), after="choose", until="extract")
        return found_networks(module, imported.model)


class Fuzz(NamedTuple):
    """What one seed works with."""

    rng: np.random.Generator
    folder: Path
    number: int

    def say(self, what: str) -> None:
        """Say what comes next, for whoever finds this process dead."""
        print(f"seed {self.number}: {what}", flush=True)

    def one_of(self, values: Sequence[Any]) -> Any:  # noqa: ANN401 - whatever there is
        return values[int(self.rng.integers(len(values)))]


def options(threads: int, entries: Mapping[str, str] | None = None) -> onnxruntime.SessionOptions:
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = threads
    made.log_severity_level = 4
    for key, value in (entries or {}).items():
        made.add_session_config_entry(key, value)
    return made


def plain(model: onnx.ModelProto) -> Session:
    return Session(model.SerializeToString(), options(1), providers=["CPUExecutionProvider"])


def provided(model: bytes | Path, threads: int, entries: Mapping[str, str] | None = None, trust: str = "1") -> Session:
    made = options(threads, entries)
    made.add_provider_for_devices(register(), {"trust_code": trust})
    return Session(model if isinstance(model, bytes) else str(model), made)


def check(drawn: DrawnModel, found: Session, right: Session, batch: int) -> None:
    """Two sessions agree on a batch, as far as float32 can; float64 judges where it rounds too much."""
    feeds = drawn.feeds(batch)
    try:
        expected = right.run(None, feeds)
    except Exception:
        assert batch == 0  # onnxruntime refuses to regroup nothing
        return
    assert_close_for_float32(drawn.proto, feeds, (found.run(None, feeds), expected), f"batch {batch}")


def wrong_calls(fuzz: Fuzz, drawn: DrawnModel, found: Session) -> None:
    """Calls with other shapes and types are errors or have a meaning, and change nothing."""
    feeds = drawn.feeds(fuzz.one_of(drawn.batches))
    name = fuzz.one_of([*feeds])
    array = feeds[name]
    shape = list(array.shape)
    match int(fuzz.rng.integers(4)):
        case 0:
            shape[int(fuzz.rng.integers(len(shape)))] = int(fuzz.rng.integers(0, 40))
        case 1:
            shape = shape[1:]
        case 2:
            shape = [*shape, 1]
        case _:
            array = array.astype(fuzz.one_of([np.float64, np.int64, np.float16]))
    changed = {**feeds, name: np.resize(array, shape)}
    fuzz.say(f"a call with {name} of shape {shape} and type {array.dtype}")
    attempt(lambda: found.run(None, changed))


def attempt(action: Callable[[], object]) -> object:
    """Run what may be refused."""
    try:
        return action()
    except Exception as error:
        text = str(error)
        assert "Traceback" not in text, text
        return None


def damaged_networks(fuzz: Fuzz, drawn: DrawnModel, optimized: ir.Model) -> None:
    """A node, or a constant that it reads, is changed: the session is refused, or right."""
    proto = ir.to_proto(optimized)
    node = fuzz.one_of(network_nodes(proto))
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    what = fuzz.one_of(["network", "digest", "activations", "format", "constant", "shape", "inputs", "outputs"])
    fuzz.say(f"{node.op_type} with its {what} changed")
    entries = {entry.name: entry for entry in node.attribute}
    read = [constants[name] for name in node.input if name in constants]
    match what:
        case "network" | "digest":
            entries[what].s = changed(fuzz, entries[what].s)
        case "activations" | "format":
            entries[what].i = int(fuzz.one_of([-1, 0, 1, 2, 3, 99, -(2**62), 2**62]))
        case "constant" | "shape":
            tensor = fuzz.one_of(read)
            array = onnx.numpy_helper.to_array(tensor)
            if what == "shape":
                array = np.resize(array, int(fuzz.rng.integers(0, 2 * array.size + 1)))
            else:
                array = array.astype(fuzz.one_of([np.float32, np.int32, np.uint8, np.float64]), casting="unsafe") + 1
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
        case "inputs":
            del node.input[int(fuzz.rng.integers(len(node.input)))]
        case _:
            del node.output[int(fuzz.rng.integers(len(node.output)))]
    if fuzz.rng.random() < 0.5:
        del proto.functions[:]
    session = attempt(lambda: redpebble.session(proto, options(2)))
    if isinstance(session, Session):
        attempt(lambda: session.run(None, drawn.feeds(drawn.batches[-1])))


def changed(fuzz: Fuzz, content: bytes) -> bytes:
    """Bytes with one flipped, or cut off, or some more."""
    position = int(fuzz.rng.integers(len(content) + 1))
    match int(fuzz.rng.integers(3)):
        case 0 if content:
            position = min(position, len(content) - 1)
            flipped = content[position] ^ (1 << int(fuzz.rng.integers(8)))
            return content[:position] + bytes([flipped]) + content[position + 1 :]
        case 1:
            return content[:position]
        case _:
            return content[:position] + fuzz.rng.bytes(int(fuzz.rng.integers(1, 100))) + content[position:]


def damaged_contexts(fuzz: Fuzz, drawn: DrawnModel, right: Session) -> None:
    """Code in a model runs, and where a byte of it is changed it is refused."""
    source, target = fuzz.folder / "in.onnx", fuzz.folder / "context.onnx"
    source.write_bytes(drawn.proto.SerializeToString())
    target.unlink(missing_ok=True)
    embeds = fuzz.one_of("01")
    entries = {"ep.context_enable": "1", "ep.context_embed_mode": embeds, "ep.context_file_path": str(target)}
    fuzz.say(f"a model with code, embed mode {embeds}")
    provided(source, 1, entries)
    if not target.is_file():
        return  # nothing became ours
    trust = fuzz.one_of("01")
    check(drawn, provided(target, 2, None, trust), right, fuzz.one_of(drawn.batches))
    proto = onnx.ModelProto.FromString(target.read_bytes())
    nodes = [node for node in proto.graph.node if node.op_type == "EPContext"]
    if not nodes:
        return
    entry = next(entry for entry in fuzz.one_of(nodes).attribute if entry.name == "ep_cache_context")
    fuzz.say(f"the same, damaged, trust {trust}")
    if embeds == "1":
        before = entry.s
        entry.s = changed(fuzz, before)
        same = entry.s == before
    else:
        file = fuzz.folder / entry.s.decode()
        before = file.read_bytes()
        file.write_bytes(changed(fuzz, before))
        same = file.read_bytes() == before
    target.write_bytes(proto.SerializeToString())
    session = attempt(lambda: provided(target, 1, None, trust))
    assert same or session is None, "damaged code was accepted"


def damaged_cache(fuzz: Fuzz, drawn: DrawnModel, right: Session) -> None:
    """What was kept on the disk is damaged: it is made again."""
    files = sorted(default_folder().glob("*.p*"))
    if not files:
        return
    file = fuzz.one_of(files)
    fuzz.say(f"{file.name} in the cache damaged")
    file.write_bytes(changed(fuzz, file.read_bytes()))
    check(drawn, provided(drawn.proto.SerializeToString(), 1), right, fuzz.one_of(drawn.batches))


def both_ways(fuzz: Fuzz, drawn: DrawnModel, models: tuple[ir.Model, Session], threads: int) -> None:
    """The optimized model with our library, and the model itself with our provider, are right before and after errors.

    `models` are the optimized one and a session that is right.
    """
    optimized, right = models
    found = {"library": redpebble.session(optimized, options(threads))}
    found["provider"] = provided(drawn.proto.SerializeToString(), threads)
    for name, session in found.items():
        for batch in (*drawn.batches, fuzz.one_of(drawn.batches)):
            fuzz.say(f"{name}, {threads} threads, batch {batch}")
            check(drawn, session, right, batch)
        wrong_calls(fuzz, drawn, session)
        check(drawn, session, right, drawn.batches[-1])


def example(fuzz: Fuzz, drawn: DrawnModel) -> None:
    """All of it on one model."""
    last = fuzz.folder / "last.onnx"
    last.write_bytes(drawn.proto.SerializeToString())
    right = plain(drawn.proto)
    threads = int(fuzz.rng.integers(1, 4))
    optimized = (
        with_networks(drawn.proto) if fuzz.rng.random() < 0.8 else redpebble.optimize(drawn.proto, target="ort").model
    )
    both_ways(fuzz, drawn, (optimized, right), threads)
    if network_nodes(ir.to_proto(optimized)):
        damaged_networks(fuzz, drawn, optimized)
    if fuzz.rng.random() < 0.5:
        damaged_contexts(fuzz, drawn, right)
    if fuzz.rng.random() < 0.3:
        damaged_cache(fuzz, drawn, right)
    gc.collect()
    assert host().network_count == 0, "networks are left"


def one_seed(number: int, folder: Path) -> None:
    """Some models of one seed."""
    fuzz = Fuzz(np.random.default_rng(number), folder, number)

    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(models())
    def run(drawn: DrawnModel) -> None:
        example(fuzz, drawn)

    run()


def main() -> None:
    """Go on until the time is over; end with 1 at the first problem."""
    seconds, first, folder = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    register()
    host().open(Eager(), minor_version(onnxruntime.__version__))
    end, number = time.monotonic() + seconds, first
    while time.monotonic() < end:
        try:
            one_seed(number, folder)
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            sys.exit(1)
        number += 1
    print(f"{number - first} seeds, {EXAMPLES} models each, no problem", flush=True)


if __name__ == "__main__":
    main()
