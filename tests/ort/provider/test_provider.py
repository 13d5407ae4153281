"""The execution provider: unmodified models give what plain onnxruntime gives, and everything is given back."""

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest

from redpebble.frontend.errors import UnsupportedModelError
from redpebble.ort.native.ep_library import EP_NAME
from redpebble.ort.provider.networks import Found, NetworkModel, Plan
from redpebble.ort.provider.register import (
    SparseNetworkCompiler,
    host,
    minor_version,
    provider_library,
    register,
    unregister,
)
from redpebble.runtime.store.artefact import Artefact
from tests.ort.provider_models import (
    CONTROL_FLOW,
    HIDDEN,
    MEASURED,
    MLP,
    OUTPUTS,
    RESIDUAL,
    UNCOVERED,
    WIDTH,
    assert_equal_runs,
    feeds,
    model,
    options,
    overridable,
    plain_session,
    provider_session,
)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("text", "networks"), [(MLP, 1), (UNCOVERED, 2), pytest.param(MEASURED, 1, marks=pytest.mark.slow)]
)
def test_an_unmodified_model_gives_what_onnxruntime_gives(text: str, networks: int, threads: int) -> None:
    proto = model(text)
    ours, plain = provider_session(proto, threads), plain_session(proto, threads)
    assert host().network_count == networks
    for batch in (0, 1, 7, 17, 300):
        assert_equal_runs(ours, plain, feeds(batch))


@pytest.mark.slow
def test_layers_in_bodies_of_control_flow_are_taken() -> None:
    proto = model(CONTROL_FLOW)
    ours, plain = provider_session(proto), plain_session(proto)
    assert host().network_count == 3
    for flag in (True, False):
        assert_equal_runs(ours, plain, {**feeds(7), "flag": np.array(flag)})


@pytest.mark.slow
def test_a_weight_that_a_run_may_replace_is_no_constant() -> None:
    proto = overridable()
    ours, plain = provider_session(proto), plain_session(proto)
    weight = np.random.default_rng(2).standard_normal((WIDTH, HIDDEN)).astype(np.float32)
    assert_equal_runs(ours, plain, feeds(7))
    assert_equal_runs(ours, plain, {**feeds(7), "w0": weight})


def test_a_dense_model_is_left_alone() -> None:
    proto = model(MLP)
    for tensor in proto.graph.initializer:
        dense = np.random.default_rng(3).standard_normal(tuple(tensor.dims)).astype(np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(dense, tensor.name))
    ours = provider_session(proto)
    assert host().network_count == 0
    assert_equal_runs(ours, plain_session(proto), feeds(7))


def test_sessions_are_independent_of_each_other() -> None:
    first, second = provider_session(model(MLP)), provider_session(model(UNCOVERED))
    del first
    gc.collect()
    assert host().network_count == 2
    assert_equal_runs(second, plain_session(model(UNCOVERED)), feeds(7))


def test_the_provider_comes_back_after_it_was_taken_out() -> None:
    assert register()[0].ep_vendor == "redpebble"
    unregister()
    assert EP_NAME not in [device.ep_name for device in onnxruntime.get_ep_devices()]
    assert_equal_runs(provider_session(model(MLP)), plain_session(model(MLP)), feeds(7))


def test_the_provider_takes_layers_for_rows() -> None:
    register(rows=8)
    assert_equal_runs(provider_session(model(MLP)), plain_session(model(MLP)), feeds(7))
    register()
    with pytest.raises(ValueError, match=r"^rows: expected 0 or more, got -1$"):
        register(rows=-1)


def test_a_provider_in_use_stays() -> None:
    session = provider_session(model(MLP))
    with pytest.raises(ValueError, match=r"^the execution provider: expected no session that uses it, got 1$"):
        unregister()
    assert_equal_runs(session, plain_session(model(MLP)), feeds(1))


@pytest.mark.slow
def test_a_wrong_size_is_an_error_of_onnxruntime() -> None:
    proto = model(RESIDUAL)
    session = provider_session(proto)
    assert host().network_count == 1
    right = {**feeds(2), "r": np.ones((2, OUTPUTS), np.float32)}
    try:
        with pytest.raises(Exception, match=r"input \d: expected size \d along axis 0, got \d"):
            session.run(None, {**right, "r": np.ones((3, OUTPUTS), np.float32)})
    finally:
        assert_equal_runs(session, plain_session(proto), right)


class Forgetful(SparseNetworkCompiler):
    """A compiler that plans every graph anew, and keeps no plan for others."""

    def recall(self, digest: bytes) -> Plan | None:
        return None

    def remember(self, digest: bytes, plan: Plan) -> None:
        pass


class Refusing(Forgetful):
    """A compiler that fails, or does not cover a network."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails

    def compile(self, digest: bytes, model: NetworkModel) -> tuple[str, Artefact]:
        if self._fails:
            raise RuntimeError("no\nmemory")
        raise UnsupportedModelError("node 'm1': too large")


@pytest.mark.slow
@pytest.mark.parametrize("fails", [True, False])
def test_a_network_that_is_not_compiled_stays_with_onnxruntime(*, fails: bool) -> None:
    register()
    host().open(Refusing(fails=fails), minor_version(onnxruntime.__version__))
    session = provider_session(model(MLP))
    assert host().network_count == 0
    assert_equal_runs(session, plain_session(model(MLP)), feeds(7))


def test_each_network_that_is_given_up_is_one_warning_of_onnxruntime(capfd: pytest.CaptureFixture[str]) -> None:
    register()
    host().open(Refusing(fails=False), minor_version(onnxruntime.__version__))
    made = options()
    made.log_severity_level = 2
    made.add_provider_for_devices(register(), {})
    onnxruntime.InferenceSession(model(UNCOVERED).SerializeToString(), made)
    shown = [line for line in capfd.readouterr().err.splitlines() if "redpebble: " in line]
    assert len(shown) == 2
    assert all("stays with onnxruntime: node 'm1': too large" in line for line in shown)
    assert "the sparse network that gives y " in shown[1]


class Remembering(Refusing):
    """A compiler that has seen every graph before."""

    def recall(self, digest: bytes) -> Plan | None:
        return Plan((), ["the sparse network that gives y stays with onnxruntime: it did before"])


def test_a_network_that_was_given_up_before_is_a_warning_again(capfd: pytest.CaptureFixture[str]) -> None:
    register()
    host().open(Remembering(fails=True), minor_version(onnxruntime.__version__))
    made = options()
    made.log_severity_level = 2
    made.add_provider_for_devices(register(), {})
    onnxruntime.InferenceSession(model(MLP).SerializeToString(), made)
    assert capfd.readouterr().err.count("stays with onnxruntime: it did before") == 1


SIZES_AT_RUN_TIME = f"""
<ir_version: 8, opset_import: ["" : 17]>
exported (float[n, s, {WIDTH}] x) => (float[n, s, {OUTPUTS}] y, int64[3] sizes)
{{
    m0 = MatMul (x, w0)
    sizes = Shape (x)
    first = Constant <value_ints: ints = [0]> ()
    second = Constant <value_ints: ints = [1]> ()
    n = Gather (sizes, first)
    s = Gather (sizes, second)
    rest = Constant <value_ints: ints = [-1]> ()
    flat = Concat <axis: int = 0> (rest, width)
    rows = Reshape (m0, flat)
    m1 = Gemm (rows, w1, b1)
    r1 = Relu (m1)
    back = Concat <axis: int = 0> (n, s, rest)
    h = Reshape (r1, back)
    y = MatMul (h, w2)
}}
"""
"""What exporters write of a layer on the last axis: sizes are worked out at run time, and also read by others."""


@pytest.mark.slow
def test_weights_say_the_sizes_that_onnxruntime_does_not_know() -> None:
    proto = model(SIZES_AT_RUN_TIME)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([HIDDEN], np.int64), "width"))
    ours, plain = provider_session(proto), plain_session(proto)
    assert host().network_count >= 1
    for n, s in ((1, 1), (2, 5), (7, 3)):
        x = np.random.default_rng(n).standard_normal((n, s, WIDTH)).astype(np.float32)
        assert_equal_runs(ours, plain, {"x": x})


class Damaging(Forgetful):
    """A compiler whose code cannot be loaded."""

    def compile(self, digest: bytes, model: NetworkModel) -> tuple[str, Artefact]:
        key, artefact = super().compile(digest, model)
        return key, artefact._replace(image=b"")


def test_an_exception_is_an_error_of_onnxruntime() -> None:
    register()
    host().open(Damaging(), minor_version(onnxruntime.__version__))
    with pytest.raises(Exception, match="redpebble: "):
        provider_session(model(MLP))


class Recording(Forgetful):
    """A compiler that takes nothing, and keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[bytes] = []

    def networks(self, model: onnx_ir.Model) -> list[Found]:
        self.shown.append(onnx_ir.to_proto(model).SerializeToString())
        return []


EVERY_KIND = """
<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
kinds (float[n, 4, k] x, string[n] words) => (float[n, k, 4] t, float[n, 4, k] l, int64[n] codes, float[2] c) {
    t = Transpose <perm: ints = [0, 2, 1]> (x)
    l = LeakyRelu <alpha: float = 0.5> (x)
    codes = ai.onnx.ml.LabelEncoder <keys_strings: strings = ["a", "bc"], values_int64s: ints = [1, -2],
                                     default_int64: int = -7> (words)
    c = ConstantOfShape <value: tensor = float[1] {2.5}> (two)
}
"""


def test_a_graph_is_read_as_it_was_written() -> None:
    proto = onnx.parser.parse_model(EVERY_KIND)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2], np.int64), "two"))
    register()
    recording = Recording()
    host().open(recording, minor_version(onnxruntime.__version__))
    made = options()
    made.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    made.add_provider_for_devices(register(), {})
    session = onnxruntime.InferenceSession(proto.SerializeToString(), made)
    assert session.run(["codes"], {"x": np.zeros((2, 4, 1), np.float32), "words": ["bc", "d"]})[0].tolist() == [-2, -7]
    shown = onnx.ModelProto.FromString(recording.shown[0]).graph
    written = proto.graph
    assert {node.output[0] for node in shown.node} == {node.output[0] for node in written.node}
    for node in written.node:
        seen = next(entry for entry in shown.node if entry.output == node.output)
        assert (seen.domain, seen.op_type, [*seen.input]) == (node.domain, node.op_type, [*node.input])
        values = {entry.name: onnx.helper.get_attribute_value(entry) for entry in seen.attribute}
        for entry in node.attribute:
            expected = onnx.helper.get_attribute_value(entry)
            if isinstance(expected, onnx.TensorProto):
                assert onnx.numpy_helper.to_array(values[entry.name]) == onnx.numpy_helper.to_array(expected)
            else:
                assert values[entry.name] == expected
    assert [value.SerializeToString() for value in shown.input] == [
        value.SerializeToString() for value in written.input
    ]
    assert [value.name for value in shown.output] == [value.name for value in written.output]
    assert onnx.numpy_helper.to_array(shown.initializer[0]).tolist() == [2]


class Watching(SparseNetworkCompiler):
    """A compiler that counts the graphs it was asked to plan."""

    def __init__(self) -> None:
        self.planned = 0

    def networks(self, model: onnx_ir.Model) -> list[Found]:
        self.planned += 1
        return super().networks(model)


@pytest.mark.slow
def test_a_graph_that_was_seen_before_is_not_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    register()
    watching = Watching()
    host().open(watching, minor_version(onnxruntime.__version__))
    proto, other = model(UNCOVERED), model(UNCOVERED)
    weight = onnx.numpy_helper.to_array(other.graph.initializer[0]).copy()
    weight[0, 0] += 1
    other.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, other.graph.initializer[0].name))
    for one, planned in ((proto, 1), (proto, 1), (other, 2), (proto, 2)):
        session = provider_session(one)
        assert watching.planned == planned
        assert host().network_count == 2
        assert_equal_runs(session, plain_session(one), feeds(7))
        del session
        gc.collect()
    lost = b'{"given_up": [], "networks": [[["x"], ["r0"], "no such key"]]}'
    for damage in (b"", b"[", b"[[1, 2]]", b"{}", lost):
        for file in tmp_path.rglob("*.plan"):
            file.write_bytes(damage)
        watching.planned = 0
        assert_equal_runs(provider_session(proto), plain_session(proto), feeds(7))
        assert watching.planned == 1


def test_an_old_onnxruntime_is_refused_in_one_line() -> None:
    message = r"^the execution provider needs onnxruntime 1\.23 or newer, this is 1\.22\.1$"
    with pytest.raises(ValueError, match=message):
        minor_version("1.22.1")
    assert minor_version("1.23.0") == 23


ALONE = """
import onnxruntime, sys
try:
    onnxruntime.register_execution_provider_library("redpebble", sys.argv[1])
except Exception as error:
    print(error)
"""


def test_a_library_without_this_process_says_what_it_needs() -> None:
    library = provider_library()
    words = [sys.executable, "-c", ALONE, str(library)]
    open_here = (int(library.name),) if library.parent == Path("/proc/self/fd") else ()
    shown = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60, pass_fds=open_here).stdout
    assert "the provider needs `redpebble.register()` in this process" in shown


RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.ort.provider_models import *
from redpebble.ort.provider.register import host
ours = provider_session(model(UNCOVERED), 2)
for batch in (0, 1, 7, 17):
    assert_equal_runs(ours, plain_session(model(UNCOVERED), 2), feeds(batch))
print("onnxruntime", onnxruntime.__version__, "networks", host().network_count)
"""
"""The session is still there when the interpreter ends."""


@pytest.mark.slow
def test_a_session_may_outlive_the_interpreter() -> None:
    words = [sys.executable, "-c", RUN, str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    assert "networks 2" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "answer"), [("1.23.2", "networks 2"), ("1.22.1", "needs onnxruntime 1.23 or newer")]
)
def test_the_provider_runs_in_an_older_onnxruntime(tmp_path: Path, version: str, answer: str) -> None:
    python = tmp_path / "environment" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", f"onnxruntime=={version}"]
    if subprocess.run(pip, check=False).returncode != 0:
        pytest.skip(f"onnxruntime {version} cannot be installed here")
    own = next((tmp_path / "environment" / "lib").glob("python*/site-packages"))
    # all other packages are those of this environment, behind the new one's
    others = "; ".join(f"site.addsitedir({path!r})" for path in sys.path if path.endswith("site-packages"))
    (own / "others.pth").write_text(f"import site; {others}\n")
    words = [python, "-c", RUN, str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)
    assert answer in done.stdout + done.stderr
