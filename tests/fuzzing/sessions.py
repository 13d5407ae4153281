"""Random models in onnxruntime, by nodes of ours and by our provider: right before and after errors and damage."""

import gc
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray

import redpebble
from redpebble.frontend.import_model import import_model
from redpebble.ort.provider.networks import Found
from redpebble.ort.provider.register import (
    AS_IT_IS,
    SparseNetworkCompiler,
    found_networks,
    host,
    minor_version,
    register,
)
from redpebble.pipeline import run_stages
from redpebble.runtime.store.cache import default_folder
from redpebble.verification.oracle import OracleError
from tests.fuzzing import random_masks, random_models
from tests.fuzzing.damage import damaged_bytes
from tests.fuzzing.fuzzer import Fuzzer, one_of
from tests.fuzzing.random_models import Arrays, Judged
from tests.support.sparse_network_models import network_nodes, prefer_sparse_kernels, with_networks

Session = onnxruntime.InferenceSession
Feeds = dict[str, NDArray[Any]]


class Call(NamedTuple):
    """Inputs, and the outputs that are right for them."""

    name: str
    feeds: Feeds
    expected: Arrays


class Case(NamedTuple):
    """A model with calls that onnxruntime takes, and how it is run and damaged."""

    folder: Path
    model: onnx.ModelProto
    judged: Judged
    calls: Sequence[Call]
    threads: int
    rng: np.random.Generator

    def hold(self, session: Session, label: str) -> None:
        """Hold a session to all calls, and then to all of them again."""
        for call in (*self.calls, *self.calls):
            self.judged.hold(session.run(None, call.feeds), call.expected, call.feeds, f"{label}, {call.name}")


def draw(seed: int, folder: Path) -> None:
    """A random graph, or layers with masks, with inputs, and the seed of what is done with it."""
    rng = np.random.default_rng(seed)
    drawn_graph = rng.random() < 0.5
    (random_models.draw if drawn_graph else random_masks.draw_network)(seed, folder)
    settings = json.loads((folder / "settings.json").read_text())
    (folder / "settings.json").write_text(json.dumps({"values": "normal", **settings, "seed": seed}))
    if drawn_graph:
        return
    content = (folder / "model.onnx").read_bytes()
    (folder / "plain.onnx").write_bytes(content)
    width = onnx.ModelProto.FromString(content).graph.input[0].type.tensor_type.shape.dim[1].dim_value
    for batch in settings["batches"]:
        np.savez(folder / f"feeds-{batch:02}.npz", x=rng.standard_normal((batch, width)).astype(np.float32))


def case_in(folder: Path) -> Case | None:
    """The case of a folder; None where onnxruntime refuses it."""
    settings = json.loads((folder / "settings.json").read_text())
    try:
        judged = Judged(folder)
    except OracleError:
        return None
    calls = list[Call]()
    for path in sorted(folder.glob("feeds-*.npz")):
        feeds: Feeds = dict(np.load(path))
        expected = judged.expected(feeds)
        if expected is not None:
            calls.append(Call(path.stem, feeds, expected))
    model = onnx.ModelProto.FromString((folder / "model.onnx").read_bytes())
    rng = np.random.default_rng(settings["seed"])
    return Case(folder, model, judged, calls, settings["threads"], rng) if calls else None


def checked(check: Callable[[Case], str], folder: Path) -> str:
    """What becomes of a case that onnxruntime takes; its cache is in its folder."""
    os.environ["REDPEBBLE_CACHE"] = str((folder / "cache").absolute())  # never the user's, which is damaged
    case = case_in(folder)
    return "refused by onnxruntime" if case is None else check(case)


def attempt(action: Callable[[], object]) -> object:
    """What an action returns that may be refused in a line, else None."""
    try:
        return action()
    except Exception as error:
        text = str(error)
        assert "Traceback" not in text, text
        return None


def call_wrongly(case: Case, session: Session) -> None:
    """Call with another shape or type: an error, or it means something."""
    feeds = one_of(case.rng, case.calls).feeds
    name = one_of(case.rng, [*feeds])
    array, shape = feeds[name], [*feeds[name].shape]
    match int(case.rng.integers(4)):
        case 0 if shape:
            shape[int(case.rng.integers(len(shape)))] = int(case.rng.integers(0, 40))
        case 1:
            shape = shape[1:]
        case 2:
            shape = [*shape, 1]
        case _:
            with np.errstate(invalid="ignore", over="ignore"):
                array = array.astype(one_of(case.rng, [np.float64, np.int64, np.float16]))
    attempt(partial(session.run, None, {**feeds, name: np.resize(array, shape)}))


def options(threads: int, entries: Mapping[str, str] | None = None) -> onnxruntime.SessionOptions:
    """Options of a session that says nothing."""
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads, made.log_severity_level = threads, 4
    for key, value in (entries or {}).items():
        made.add_session_config_entry(key, value)
    return made


def check_nodes(case: Case) -> str:
    """Nodes of ours are right before and after wrong calls; a damaged one is refused, or runs to its end."""
    eager = case.rng.random() < 0.8
    optimized = with_networks(case.model) if eager else redpebble.optimize(case.model).model
    session = redpebble.session(optimized, options(case.threads))
    case.hold(session, "nodes")
    call_wrongly(case, session)
    case.hold(session, "nodes after a wrong call")
    proto = ir.to_proto(optimized)
    if not network_nodes(proto):
        return "right, no node"
    before = sealed_content(proto)
    word = damage_node(case.rng, proto)
    damaged = attempt(lambda: redpebble.session(proto, options(case.threads)))
    if not isinstance(damaged, Session):
        return f"{word} refused"
    assert "sealed" in word or before == sealed_content(proto), f"a changed {word} was accepted"
    for call in case.calls:
        attempt(partial(damaged.run, None, call.feeds))
    return f"{word} runs"


def sealed_content(proto: onnx.ModelProto) -> list[bytes]:
    """What the digests of nodes of ours are of, and the digests."""
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor).tobytes() for tensor in proto.graph.initializer}
    nodes = network_nodes(proto)
    entries = [entry.s for node in nodes for entry in node.attribute if entry.name in ("network", "digest")]
    return [*entries, *(constants[name] for node in nodes for name in node.input if name in constants)]


DAMAGES = ("network", "network", "digest", "activations", "format", "constant", "shape", "input", "output")


def damage_node(rng: np.random.Generator, proto: onnx.ModelProto) -> str:
    """Change a node of ours or a constant that it reads, and perhaps make its digest right again; return which."""
    node = one_of(rng, network_nodes(proto))
    entries = {entry.name: entry for entry in node.attribute}
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    read = [constants[name] for name in node.input if name in constants]
    what = one_of(rng, DAMAGES)
    match what:
        case "network" | "digest":
            entries[what].s = damaged_bytes(entries[what].s, rng)
        case "activations" | "format":
            entries[what].i = one_of(rng, [-1, 0, 1, 2, 3, 99, -(2**62), 2**62])
        case "constant" | "shape":
            _damage_constant(rng, one_of(rng, read), what)
        case "input":
            del node.input[int(rng.integers(len(node.input)))]
        case _:
            del node.output[int(rng.integers(len(node.output)))]
    if rng.random() < 0.5:
        del proto.functions[:]
    if what == "digest" or rng.random() < 0.5:
        return what
    digest = hashlib.sha256(entries["network"].s)
    for name in node.input:
        if name in constants:
            digest.update(onnx.numpy_helper.to_array(constants[name]).tobytes())
    entries["digest"].s = digest.hexdigest().encode()
    return f"{what}, sealed,"


def _damage_constant(rng: np.random.Generator, tensor: onnx.TensorProto, what: str) -> None:
    array = onnx.numpy_helper.to_array(tensor)
    if what == "shape":
        array = np.resize(array, int(rng.integers(0, 2 * array.size + 1)))
    elif rng.random() < 0.5 and array.size:
        array = array.copy()
        value = np.array(one_of(rng, [-1, 0, 1, 7, 127, 10**9, -(10**6)]))
        array.reshape(-1)[int(rng.integers(array.size))] = value.astype(array.dtype)
    else:
        array = array.astype(one_of(rng, [np.float32, np.int32, np.uint8, np.float64]), casting="unsafe") + 1
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


class Eager(SparseNetworkCompiler):
    """A compiler that takes every sparse layer, however small: few of these would gain."""

    def networks(self, model: ir.Model) -> list[Found]:
        """The networks of a model."""
        imported = import_model(model, foreign="keep")
        module = imported.module
        run_stages(module, AS_IT_IS, until="choose")
        prefer_sparse_kernels(module)
        run_stages(module, AS_IT_IS, after="choose", until="extract")
        return found_networks(module, imported.model)


def provided(case: Case, model: bytes | Path, entries: Mapping[str, str] | None = None, trust: str = "1") -> Session:
    """A session with our provider."""
    made = options(case.threads, entries)
    made.add_provider_for_devices(register(), {"trust_code": trust})
    return Session(model if isinstance(model, bytes) else str(model), made)


def with_provider(check: Callable[[Case], str], case: Case) -> str:
    """What becomes of a case with our provider, which takes all sparse layers and keeps none in the end."""
    register()
    host().open(Eager(), minor_version(onnxruntime.__version__))
    word = check(case)
    gc.collect()
    assert host().network_count == 0, "networks are left"
    return word


def check_provider(case: Case) -> str:
    """The provider is right before and after wrong calls, and with a cache that was damaged."""
    content = case.model.SerializeToString()
    session = provided(case, content)
    case.hold(session, "provider")
    call_wrongly(case, session)
    case.hold(session, "provider after a wrong call")
    files = sorted(path for path in default_folder().rglob("*") if path.is_file())
    for path in files:
        path.write_bytes(damaged_bytes(path.read_bytes(), case.rng))
    case.hold(provided(case, content), "provider with a damaged cache")
    return f"{len(files)} files damaged"


def check_context(case: Case) -> str:
    """Code in a model runs; where a byte of it is changed it is refused, whether it is trusted or not."""
    target, trust, embeds = case.folder / "context.onnx", one_of(case.rng, "01"), one_of(case.rng, "01")
    target.unlink(missing_ok=True)  # of the run that is replayed
    entries = {"ep.context_enable": "1", "ep.context_embed_mode": embeds, "ep.context_file_path": str(target)}
    try:
        provided(case, case.folder / "model.onnx", entries)
    except Exception as error:
        # onnxruntime copies the constants that nodes read into a context model, and forgets those that bodies read
        bodies = any(node.op_type in ("If", "Loop") for node in case.model.graph.node)
        if not bodies or "INVALID_GRAPH" not in str(error):
            raise
        return "onnxruntime writes no context of its bodies"
    if not target.is_file():
        return "no context"
    case.hold(provided(case, target, None, trust), "context")
    proto = onnx.ModelProto.FromString(target.read_bytes())
    nodes = [node for node in proto.graph.node if node.op_type == "EPContext"]
    if not nodes:
        return "no context"
    entry = next(entry for entry in one_of(case.rng, nodes).attribute if entry.name == "ep_cache_context")
    file = None if embeds == "1" else case.folder / entry.s.decode()
    before = entry.s if file is None else file.read_bytes()
    after = damaged_bytes(before, case.rng)
    if file is None:
        entry.s = after
        target.write_bytes(proto.SerializeToString())
    else:
        file.write_bytes(after)
    session = attempt(lambda: provided(case, target, None, trust))
    if before == after:
        return "unchanged"
    assert session is None, "damaged code was accepted"
    return f"{'inside' if file is None else 'beside'}, trust {trust}, refused"


NODES = Fuzzer("nodes", draw, partial(checked, check_nodes))
PROVIDER = Fuzzer("provider", draw, partial(checked, partial(with_provider, check_provider)))
CONTEXTS = Fuzzer("contexts", draw, partial(checked, partial(with_provider, check_context)))
