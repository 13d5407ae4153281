"""Random graphs through `compile`, `optimize` and `session` against onnxruntime; float64 judges where sums cancel."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
from hypothesis import HealthCheck, Phase, given, seed, settings
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

import redpebble
from redpebble.frontend.errors import ModelError
from redpebble.verification.oracle import Oracle, OracleError
from tests.end_to_end.agreement import ATOL, RTOL
from tests.end_to_end.random_graphs import DrawnModel, models
from tests.fuzzing.fuzzer import Fuzzer, one_of
from tests.fuzzing.rewrapped_graphs import rewrapped
from tests.support.lowering_modules import HERE, TARGETS
from tests.support.sparse_network_models import with_networks

OPSETS = range(7, 25)
VALUES = ("normal", "normal", "zeros", "tiny", "special")

Arrays = list[NDArray[Any]]


def drawn_model(number: int) -> DrawnModel:
    """The model of a seed: Hypothesis's second example, as its first is the simplest whatever the seed."""
    found = list[DrawnModel]()

    @seed(number)
    @settings(
        max_examples=2,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(models(OPSETS))
    def keep(drawn: DrawnModel) -> None:
        found.append(drawn)

    keep()
    return found[-1]


def draw(number: int, folder: Path) -> None:
    """A model in two forms of the same function, plain and rewrapped, inputs for each batch, and how to run it."""
    rng, drawn = np.random.default_rng(number), drawn_model(number)
    chosen: dict[str, Any] = {
        "target": one_of(rng, list(HERE)),
        "threads": int(rng.integers(1, 4)),
        "values": one_of(rng, VALUES),
    }
    (folder / "plain.onnx").write_bytes(drawn.proto.SerializeToString())
    model = onnx.ModelProto.FromString(drawn.proto.SerializeToString())
    forms = rewrapped(model, rng)
    forgets = bool(rng.random() < 0.2)
    if forgets:
        forget_sizes(model, rng)
    # calls are always covered, branches and unknown sizes where they can be folded
    chosen["may be refused"] = forgets or "branch" in forms or "loop" in forms
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "settings.json").write_text(json.dumps(chosen | {"forms": forms}))
    for batch in drawn.batches:
        feeds = drawn.feeds(batch)
        for array in feeds.values():
            change_values(array, chosen["values"], rng)
        np.savez(folder / f"feeds-{batch:02}.npz", allow_pickle=False, **feeds)


def forget_sizes(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Take away what is known of an input's dimension: its number or its name."""
    dims = one_of(rng, [*model.graph.input]).type.tensor_type.shape.dim
    if dims:
        one_of(rng, [*dims]).Clear()


def change_values(array: NDArray[np.float32], kind: str, rng: np.random.Generator) -> None:
    """Put zeros, denormal numbers, or what is no number into some places."""
    pools = {"zeros": (0.0, -0.0), "tiny": (1e-40, -1e-45, 0.0, 1.2e-38), "special": (np.nan, np.inf, -np.inf, 3e38)}
    if kind in pools:
        places = rng.random(array.shape) < one_of(rng, (0.05, 0.5))
        array[places] = rng.choice(np.array(pools[kind], dtype=np.float32), int(places.sum()))


class Judged:
    """A case's model in onnxruntime, and what its outputs are held to."""

    def __init__(self, folder: Path) -> None:
        """Load the case.

        Raises:
            OracleError: onnxruntime refuses the model.
        """
        self._plain = onnx.ModelProto.FromString((folder / "plain.onnx").read_bytes())
        self._right = Oracle(folder / "model.onnx")
        self.special = json.loads((folder / "settings.json").read_text())["values"] == "special"

    def expected(self, feeds: dict[str, NDArray[Any]]) -> Arrays | None:
        """What onnxruntime computes; None where it refuses the inputs, as some forms of MatMul a batch of 0."""
        try:
            return self._right.run(feeds)
        except OracleError:
            return None

    def hold(self, found: Arrays, expected: Arrays, feeds: dict[str, NDArray[Any]], label: str) -> None:
        """Raise AssertionError where outputs are wrong."""
        assert len(found) == len(expected), label
        scale = max(1.0, *(largest(array) for array in expected))
        exact = None
        for index, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            assert ours.dtype == theirs.dtype, f"{label}, output {index}: {ours.dtype}, expected {theirs.dtype}"
            if ours.shape == theirs.shape and agree(ours, theirs, scale, special=self.special):
                continue
            exact = exact or in_float64(self._plain, feeds)
            judge = exact[index]
            assert ours.shape == judge.shape, f"{label}, output {index}: shape {ours.shape}, expected {judge.shape}"
            if self.special:
                assert agree(ours, judge, scale, special=True), f"{label}, output {index}: values are wrong"
            else:
                error, other = largest(ours - judge), largest(theirs - judge) if theirs.size else 0.0
                assert np.isfinite(ours).all() == np.isfinite(judge).all(), f"{label}, output {index}: not finite"
                assert error <= 8 * other, f"{label}, output {index}: off by {error:.3g}, onnxruntime by {other:.3g}"


def largest(array: NDArray[Any]) -> float:
    """The largest magnitude of the finite values."""
    return float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))


def agree(ours: NDArray[Any], theirs: NDArray[Any], scale: float, *, special: bool) -> bool:
    """Whether values are equal as far as float32 can be; from special inputs NaN may come where a number could.

    A zero of a weight may be skipped, so that any number may stand where onnxruntime has NaN.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.isclose(ours, theirs, RTOL, max(ATOL, RTOL * scale), equal_nan=True)
    return bool((close | np.isnan(ours) | np.isnan(theirs)).all() if special else close.all())


def in_float64(model: onnx.ModelProto, feeds: dict[str, NDArray[Any]]) -> Arrays:
    """The outputs of a model without branches and functions in float64, by the ONNX project's reference."""
    wide = onnx.ModelProto.FromString(model.SerializeToString())
    for constant in wide.graph.initializer:
        if constant.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(constant).astype(np.float64)
            constant.CopyFrom(numpy_helper.from_array(array, constant.name))
    for value in (*wide.graph.input, *wide.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in wide.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    with np.errstate(all="ignore"):
        doubles = {name: array.astype(np.float64) for name, array in feeds.items()}
        outputs = ReferenceEvaluator(wide).run(None, doubles)  # pyright: ignore[reportUnknownMemberType]
    return [np.asarray(output) for output in outputs]


def check(folder: Path) -> str:
    """What runs is right on every way; what is not covered is refused by `compile`, and by nothing else."""
    chosen = json.loads((folder / "settings.json").read_text())
    try:
        judged = Judged(folder)
    except OracleError:
        return "refused by onnxruntime"
    model = folder / "model.onnx"
    runs: dict[str, Any] = {
        "optimize": Oracle(redpebble.optimize(model).model),
        "session": redpebble.session(redpebble.optimize(model, target="ort").model),
        "networks": redpebble.session(onnx_ir.to_proto(with_networks(model))),
    }
    word = "right"
    try:
        native = redpebble.compile(
            model, target=TARGETS[chosen["target"]], threads=chosen["threads"], cache=folder / "cache"
        )
    except ModelError as error:
        if not chosen["may be refused"]:
            raise
        print(f"compile: {error}")
        native, word = None, "not covered by compile"
    for path in sorted(folder.glob("feeds-*.npz")):
        feeds: dict[str, NDArray[Any]] = dict(np.load(path))
        expected = judged.expected(feeds)
        if expected is None:
            continue
        for name, session in runs.items():
            found = session.run(feeds) if isinstance(session, Oracle) else session.run(None, feeds)
            judged.hold(found, expected, feeds, f"{name}, {path.stem}")
        if native is not None:
            found = native.run(None, feeds)
            judged.hold(found, expected, feeds, f"compile for {chosen['target']}, {path.stem}")
            for threads in range(1, chosen["threads"]):
                other = native.run(None, feeds, threads=threads)
                same = all(one.tobytes() == two.tobytes() for one, two in zip(found, other, strict=True))
                assert same, f"other bits by {threads} threads than by {chosen['threads']}, {path.stem}"
    return word


MODELS = Fuzzer("graphs", draw, check)
