"""The engines that are measured side by side: a name, and how a model becomes a call."""

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from ....foundation.threads import usable_threads
from ....frontend.errors import UnsupportedModelError
from ....verification.measuring import Call
from ....verification.oracle import Oracle, session_options
from ..errors import NotAChainError, NotCoveredError, PeerError
from .chain import chain_of
from .loaded import Feeds, Loaded, ModelPath
from .own_process import PROCESSES, OwnProcess
from .peers import PEERS, Peer

MOST_WORDS: Final = 200
"""Letters of another library's error that are shown."""


class Engine(Protocol):
    """Something that runs models."""

    @property
    def settle_seconds(self) -> float:
        """The longest time for which an engine's threads go on spinning after a call."""
        ...

    def load(self, model: ModelPath) -> Loaded:
        """Return the model in this engine.

        Raises:
            PeerError: the engine is not installed.
            NotAChainError: the engine runs chains of linear layers only.
            NotCoveredError: the engine does not run all of the model.
        """
        ...


class Native:
    """Our native code, for models that are covered from end to end."""

    settle_seconds = 1e-3

    def load(self, model: ModelPath) -> Loaded:
        """Return the model, compiled.

        Raises:
            NotCoveredError: For a model of which a part would stay with onnxruntime.
        """
        from .... import compile as compile_model

        try:
            compile_model(model, threads=1)
        except UnsupportedModelError as error:
            raise NotCoveredError(f"{error}; redpebble.session runs it") from error

        def call(feeds: Feeds, threads: int) -> Call:
            network = compile_model(model, threads=threads)
            return lambda: network.run(None, feeds)

        return call


class Session:
    """onnxruntime with our kernels inside, as `redpebble.session` makes it."""

    settle_seconds = 1e-3

    def load(self, model: ModelPath) -> Loaded:
        def call(feeds: Feeds, threads: int) -> Call:
            from .... import session
            from ....ort.sized_session import prepare_for

            oracle = Oracle.of(lambda: session(model, session_options(threads)))
            prepare_for(oracle.session, feeds)
            return _called(oracle, feeds)

        return call


class Provider:
    """onnxruntime with our execution provider, which `redpebble.register` adds to it."""

    settle_seconds = 1e-3

    def load(self, model: ModelPath) -> Loaded:
        def call(feeds: Feeds, threads: int) -> Call:
            from .... import register

            options = session_options(threads)
            options.add_provider_for_devices(register(), {})
            return _called(Oracle.of(lambda: onnxruntime.InferenceSession(os.fspath(model), options)), feeds)

        return call


class Onnxruntime:
    """onnxruntime, for which zeros are numbers like any other."""

    settle_seconds = 1e-3

    def load(self, model: ModelPath) -> Loaded:
        def call(feeds: Feeds, threads: int) -> Call:
            return _called(Oracle(model, threads), feeds)

        return call


class Floats:
    """onnxruntime with floats where a model rounds to codes and back; not for layers that compute with codes."""

    settle_seconds = 1e-3

    def load(self, model: ModelPath) -> Loaded:
        check_layers(model)

        def call(feeds: Feeds, threads: int) -> Call:
            return _called(Oracle.of(lambda: float_session(model, threads)), feeds)

        return call


@dataclass(frozen=True)
class Openvino:
    """OpenVINO on the CPU, in floats as the others."""

    at_once: bool = False
    """Whether several threads will call: as many streams as there is room for, else one, which answers sooner."""
    settle_seconds: float = 3e-3

    def load(self, model: ModelPath) -> Loaded:
        """Return the model, which is compiled for the sizes of its inputs.

        Raises:
            PeerError: OpenVINO is not installed.
        """
        try:
            runtime = import_module("openvino")
        except ModuleNotFoundError:
            raise PeerError("the package openvino is not installed") from None
        core = runtime.Core()

        def call(feeds: Feeds, threads: int) -> Call:
            streams = max(1, usable_threads() // threads) if self.at_once else 1
            settings = {
                "NUM_STREAMS": streams,
                "INFERENCE_NUM_THREADS": streams * threads,
                "INFERENCE_PRECISION_HINT": "f32",
            }
            inputs = dict(feeds)
            try:
                read = core.read_model(os.fspath(model))
                read.reshape({name: list(array.shape) for name, array in feeds.items()})
                compiled = core.compile_model(read, "CPU", settings)
            except RuntimeError as error:
                raise NotCoveredError(f"OpenVINO: {' '.join(str(error).split())[:MOST_WORDS]}") from error
            requests = threading.local()  # a request runs one call at a time

            def run() -> list[Any]:
                if not hasattr(requests, "own"):
                    requests.own = compiled.create_infer_request()
                results = requests.own.infer(inputs)
                return [results[output] for output in compiled.outputs]

            run()
            return run

        return call


def _called(oracle: Oracle, feeds: Feeds) -> Call:
    """Return the call of a session; what onnxruntime says against it, or the inputs, is one line."""
    inputs = dict(feeds)
    oracle.run(inputs)
    return lambda: oracle.session.run(None, inputs)


@dataclass(frozen=True)
class ChainEngine:
    """A library of sparse matrices, layer by layer."""

    peer: Peer
    settle_seconds: float

    def load(self, model: ModelPath) -> Loaded:
        self.peer.check()
        layers = chain_of(model)

        def call(feeds: Feeds, threads: int) -> Call:
            (x,) = feeds.values()
            rows = x.reshape(-1, x.shape[-1])
            run = self.peer.prepare(layers, len(rows), threads)
            return lambda: [run(rows).reshape(*x.shape[:-1], -1)]

        return call


ENGINES: Final[Mapping[str, Engine]] = MappingProxyType(
    {
        "session": Session(),
        "native": Native(),
        "provider": Provider(),
        "onnxruntime": Onnxruntime(),
        "openvino": Openvino(),
        "fp32": Floats(),
        "scipy": ChainEngine(PEERS["scipy"], 0.0),
        "mkl": ChainEngine(PEERS["mkl"], 3e-3),
        "torch": ChainEngine(PEERS["torch"], 2e-2),
        "deepsparse": OwnProcess("deepsparse", sys.executable),
        "openvino-bf16": OwnProcess("openvino-bf16", sys.executable),
    }
)


CALLED_AT_ONCE: Final[Mapping[str, Engine]] = MappingProxyType({"openvino": Openvino(at_once=True)})
"""Engines that are set up in another way where several threads call."""


def load_engines(
    names: Sequence[str], model: ModelPath, engines: Mapping[str, Engine] = ENGINES
) -> tuple[dict[str, Loaded], list[str]]:
    """Return `model` in each engine that can run it, and a line for each that cannot.

    `NAME=PYTHON` is an engine in a process of its own, with the Python that it is installed in.

    Raises:
        ValueError: an engine that is not known.
    """
    chosen = dict(_named(word, engines) for word in names)
    loaded: dict[str, Loaded] = {}
    skipped: list[str] = []
    for name, engine in chosen.items():
        try:
            loaded[name] = engine.load(model)
        except (PeerError, NotAChainError, NotCoveredError) as error:
            skipped.append(left_out_line(name, error))
    return loaded, skipped


def _named(word: str, engines: Mapping[str, Engine]) -> tuple[str, Engine]:
    """Return the name of an engine, and the engine."""
    name, separator, python = word.partition("=")
    known = PROCESSES if separator else tuple(engines)
    if name not in known:
        raise ValueError(f"engine: expected one of {', '.join(known)}, got {name!r}")
    return name, OwnProcess(name, python) if separator else engines[name]


def left_out_line(name: str, error: Exception) -> str:
    """Return why an engine takes no part."""
    return f"{name} is left out: {error}"


def installed_peers() -> tuple[str, ...]:
    """Return the engines that users without a wish for others should see beside ours."""
    return ("openvino",) if find_spec("openvino") is not None else ()


# A quantized model with floats in its layers: the float baseline of its integer kernels.

ROUNDING: Final = ("QuantizeLinear", "DequantizeLinear")

ON_CODES: Final = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    }
)
"""Layers that compute with codes themselves."""


def without_rounding(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which no values are rounded: QuantizeLinear with DequantizeLinear behind it is the identity.

    Where the least code stands for 0 it is Relu, which quantizers drop there.
    """
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    nodes = twin.graph.node
    rounded = {node.output[0]: node for node in nodes if node.op_type == ROUNDING[0]}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in twin.graph.initializer}
    for node in nodes:
        if node.op_type == ROUNDING[1] and node.input[0] in rounded:
            before = rounded[node.input[0]]
            zero = constants.get(before.input[2]) if len(before.input) > 2 else np.array(0, np.uint8)
            least = zero is not None and zero.dtype.kind in "iu" and bool(np.all(zero == np.iinfo(zero.dtype).min))
            operator = "Relu" if least else "Identity"
            node.CopyFrom(onnx.helper.make_node(operator, [before.input[0]], [node.output[0]], name=node.name))
    read = {name for node in nodes for name in node.input} | {value.name for value in twin.graph.output}
    kept = [node for node in nodes if node.op_type != ROUNDING[0] or node.output[0] in read]
    del nodes[:]
    nodes.extend(kept)
    return twin


def check_layers(path: str | os.PathLike[str]) -> None:
    """Check that floats are known for all layers of a model.

    Raises:
        NotCoveredError: one computes with codes itself.
    """
    model = onnx.load_from_string(Path(path).read_bytes())
    found = sorted({node.op_type for node in model.graph.node} & ON_CODES)
    if found:
        raise NotCoveredError(
            f"expected layers between DequantizeLinear and QuantizeLinear, got operator {found[0]} on quantized values"
        )


def float_session(path: str | os.PathLike[str], threads: int) -> onnxruntime.InferenceSession:
    """Return onnxruntime's session of such a model, whose weights are floats, too."""
    options = session_options(threads)
    # it dequantizes constants when it loads a model only if it looks for no layers of integers
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    twin = without_rounding(onnx.load_from_string(Path(path).read_bytes()))
    return onnxruntime.InferenceSession(twin.SerializeToString(), options, providers=["CPUExecutionProvider"])
