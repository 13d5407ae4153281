"""Random networks of layers that have kernels of their own: on images, of eight bits, and over the edges of a graph."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.frontend.errors import ModelError
from redpebble.runtime.jit import host_target
from redpebble.verification.oracle import Oracle, OracleError, exact_session
from tests.end_to_end.agreement import RTOL
from tests.fuzzing import random_images
from tests.fuzzing.fuzzer import Fuzzer, one_of
from tests.support.lowering_modules import HERE, TARGETS
from tests.support.quantized_models import (
    Form,
    dynamically_quantized,
    pruned_network,
    quantized,
    quantized_images,
)

INVALID_ARGUMENT: type[Exception] = vars(sys.modules["onnxruntime.capi.onnxruntime_pybind11_state"])["InvalidArgument"]

EXACT = ("Relu", "Identity")
"""Activations that are the same float32 in every program, so that bytes are the same after them."""

ROUNDED = 1e-3
"""Share of the largest output that float16 may be off by where its neighbour is nearest."""

STEPS = 0.05
"""Share of the largest output that bytes may be off by where an activation rounds otherwise."""


def draw_quantized(seed: int, folder: Path) -> None:
    """A pruned network that onnxruntime's quantizer changed, in one of its forms."""
    rng = np.random.default_rng(seed)
    sizes = [one_of(rng, (4, 20, 33, 64, 128, 260)) for _ in range(int(rng.integers(2, 5)))]
    activation = one_of(rng, ("Relu", "Relu", "Identity", "Gelu", "Sigmoid"))
    floats = pruned_network(sizes, one_of(rng, (0.02, 0.1, 0.3, 1.0)), activation)
    forms: tuple[Form, Form] = ("qdq", "operator")
    form, kind = one_of(rng, forms), one_of(rng, ("QUInt8", "QInt8"))
    # operators of integers have no weights with a zero point of their own
    weights = one_of(rng, ("QInt8", "QUInt8")) if form == "qdq" and kind == "QUInt8" else "QInt8"
    with TemporaryDirectory() as made:
        model = quantized(floats, Path(made), form, kind, weights, per_channel=bool(rng.random() < 0.4))
    exact = activation in EXACT and host_target().multiplies_bytes
    write(folder, model, rng, 0.0 if exact else STEPS)
    for batch in {1, int(rng.integers(0, 70))}:
        x = rng.standard_normal((batch, sizes[0])) * one_of(rng, (0.1, 1.0, 100.0))
        np.savez(folder / f"feeds-{batch:02}.npz", x=x.astype(np.float32))


class DrawnGraph:
    """A network whose layers gather values of nodes along fixed edges, and add them up or compare them."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.count, self._edge_count = int(rng.integers(1, 200)), int(rng.integers(0, 900))
        self._nodes, self._tensors = list[onnx.NodeProto](), dict[str, NDArray[Any]]()
        self._ends = [rng.integers(0, self.count, self._edge_count) for _ in range(2)]
        if rng.random() < 0.2:  # they count from the end
            self._ends = [np.where(rng.random(len(ends)) < 0.5, ends - self.count, ends) for ends in self._ends]

    def model(self, features: int) -> onnx.ModelProto:
        """The model: x [nodes, features] to y."""
        value, width = "x", features
        for _ in range(int(self._rng.integers(1, 4))):
            if self._rng.random() < 0.6:
                width, before = one_of(self._rng, (1, 3, 8, 16, 33)), width
                kept = self._rng.random((before, width)) < one_of(self._rng, (0.2, 1.0))
                weight = self._tensor(kept * self._rng.standard_normal((before, width)) / np.sqrt(before))
                value = self._node("MatMul", value, weight)
            value = one_of(self._rng, (self._scattered, self._scattered, self._largest, self._product))(value, width)
            if self._rng.random() < 0.5:
                bias = self._tensor(self._rng.standard_normal(width))
                value = self._node("Relu", self._node("Add", value, bias))
        self._nodes.append(helper.make_node("Identity", [value], ["y"]))
        ports = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", [self.count, features]), ("y", [self.count, width]))
        ]
        constants = [numpy_helper.from_array(array, name) for name, array in self._tensors.items()]
        graph = helper.make_graph(self._nodes, "edges", ports[:1], ports[1:], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)

    def _tensor(self, array: NDArray[Any]) -> str:
        name = f"c{len(self._tensors)}"
        self._tensors[name] = array.astype(np.float32) if array.dtype.kind == "f" else array
        return name

    def _node(self, operator: str, *inputs: str, **attributes: str | int) -> str:
        name = f"v{len(self._nodes)}"
        node = helper.make_node(operator, inputs, [name], name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self._nodes.append(node)
        return name

    def _gathered(self, value: str) -> str:
        return self._node("Gather", value, self._tensor(self._ends[0]), axis=0)

    def _spread(self, width: int) -> str:
        return self._tensor(np.repeat(self._ends[1][:, np.newaxis], width, axis=1))

    def _scattered(self, value: str, width: int) -> str:
        messages = self._gathered(value)
        if self._rng.random() < 0.5:
            messages = self._node("Mul", messages, self._tensor(self._rng.standard_normal((self._edge_count, 1))))
        start = self._tensor(np.zeros((self.count, width)))
        if self._rng.random() < 0.3:
            return self._node("ScatterND", start, self._tensor(self._ends[1][:, np.newaxis]), messages, reduction="add")
        return self._node("ScatterElements", start, self._spread(width), messages, axis=0, reduction="add")

    def _largest(self, value: str, width: int) -> str:
        start = np.zeros((self.count, width))
        start[self._ends[1]] = np.finfo(np.float32).min
        inputs = self._tensor(start), self._spread(width), self._gathered(value)
        return self._node("ScatterElements", *inputs, axis=0, reduction="max")

    def _product(self, value: str, width: int) -> str:
        del width
        kept = self._rng.random((self.count, self.count)) < one_of(self._rng, (0.0, 0.05, 0.5))
        return self._node("MatMul", self._tensor(kept * self._rng.standard_normal(kept.shape)), value)


def draw_aggregations(seed: int, folder: Path) -> None:
    """A graph network with values of its nodes."""
    rng = np.random.default_rng(seed)
    drawn, features = DrawnGraph(rng), one_of(rng, (1, 5, 16, 40))
    write(folder, drawn.model(features), rng, RTOL)
    np.savez(folder / "feeds-0.npz", x=rng.standard_normal((drawn.count, features)).astype(np.float32))


def draw_images(seed: int, folder: Path) -> None:
    """A network on images, with images."""
    rng = np.random.default_rng(seed)
    drawn = random_images.DrawnImages(rng)
    model = drawn.net.model(*drawn.outputs())
    random_images.forget_sizes(model, rng)
    kind = np.dtype(one_of(rng, (np.float32,) * 7 + (np.float16,)))
    if kind == np.float16:
        random_images.give_half_ends(model)
    write(folder, model, rng, RTOL if kind == np.float32 else ROUNDED)
    for batch in {1, int(rng.integers(0, 10))}:
        feeds = {name: array.astype(kind) for name, array in drawn.net.images(batch).items()}
        np.savez(folder / f"feeds-{batch:02}.npz", allow_pickle=False, **feeds)


def draw_quantized_images(seed: int, folder: Path) -> None:
    """A network on images that onnxruntime's quantizer changed, in one of its forms."""
    rng = np.random.default_rng(seed)
    drawn = random_images.DrawnImages(rng)
    floats = drawn.net.model(*drawn.outputs())
    static: tuple[Form, ...] = ("qdq", "qdq", "operator")
    form, kind, per_channel = one_of(rng, (*static, None)), one_of(rng, ("QUInt8", "QInt8")), bool(rng.random() < 0.4)
    model = floats
    with TemporaryDirectory() as made, suppress(INVALID_ARGUMENT):
        # where onnxruntime takes no SAME pads with dilations, its quantizer does not either: the floats are the case
        if form is None:  # values have the codes that each call finds
            model = dynamically_quantized(floats, Path(made), kind, per_channel=per_channel)
        else:
            model = quantized_images(floats, Path(made), form, kind, per_channel=per_channel)
    write(folder, model, rng, STEPS)
    for batch in {1, int(rng.integers(0, 10))}:
        np.savez(folder / f"feeds-{batch:02}.npz", allow_pickle=False, **drawn.net.images(batch))


def write(folder: Path, model: onnx.ModelProto, rng: np.random.Generator, tolerance: float) -> None:
    """Write a model, and how it is to be compiled and compared."""
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    chosen = {"target": one_of(rng, list(HERE)), "threads": int(rng.integers(1, 4)), "tolerance": tolerance}
    (folder / "settings.json").write_text(json.dumps(chosen))


def check(folder: Path) -> str:
    """What onnxruntime computes is what every way computes, as exactly as the case asks; some `compile` refuses."""
    chosen, model = json.loads((folder / "settings.json").read_text()), folder / "model.onnx"
    try:
        right = Oracle(model, exact=True)
    except OracleError:
        return "refused by onnxruntime"
    native, word = None, "right"
    try:
        target = TARGETS[chosen["target"]]
        native = redpebble.compile(model, target=target, threads=chosen["threads"], cache=folder / "cache")
    except ModelError as error:
        print(f"compile: {error}")
        word = "not covered by compile"
    session = exact_session(lambda options: redpebble.session(model, options))
    optimized = Oracle(redpebble.optimize(model, target="ort").model, exact=True)
    for path in sorted(folder.glob("feeds-*.npz")):
        feeds: dict[str, NDArray[Any]] = dict(np.load(path))
        try:
            expected = right.run(feeds)
        except OracleError:
            continue  # it refuses a batch of 0 here and there
        if not all(np.isfinite(one).all() for one in expected):
            continue  # states that grow without bounds
        spoiled = {name: np.full_like(array, np.nan if array.dtype.kind == "f" else 0) for name, array in feeds.items()}
        session.run(None, spoiled)  # memory that is used again may hold anything
        ways = {"session": session.run(None, feeds), "optimize": optimized.run(feeds)}
        if native is not None:
            native.run(None, spoiled)
            ways[f"compile for {chosen['target']}"] = native.run(None, feeds)
        for way, found in ways.items():
            for ours, theirs in zip(found, expected, strict=True):
                kinds = [f"{one.dtype} of shape {one.shape}" for one in (ours, theirs)]
                assert kinds[0] == kinds[1], f"{way}, {path.stem}: {kinds[0]}, expected {kinds[1]}"
                allowed = chosen["tolerance"] * max(1.0, float(np.max(np.abs(theirs), initial=0.0)))
                error = float(np.max(np.abs(ours.astype(np.float32) - theirs), initial=0.0))
                assert error <= allowed, f"{way}, {path.stem}: off by {error:.3g}, accepted is {allowed:.3g}"
    return word


IMAGES = Fuzzer("images", draw_images, check)
QUANTIZED_IMAGES = Fuzzer("quantized-images", draw_quantized_images, check)
QUANTIZED = Fuzzer("quantized", draw_quantized, check)
AGGREGATIONS = Fuzzer("aggregations", draw_aggregations, check)
