"""Models that hold native code as EPContext nodes: it runs where it is trusted and fits, and nowhere else."""

import importlib
import json
import shutil
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import onnxruntime
import pytest

from redpebble.ort.native.ep_api import Compatibility
from redpebble.ort.provider.context_nodes import compatibility_of, compatibility_text
from redpebble.ort.provider.networks import NetworkModel, Plan
from redpebble.ort.provider.register import SparseNetworkCompiler, host, minor_version, register
from redpebble.runtime.store.artefact import MAGIC, NUMBERS, PROLOGUE_BYTES, Artefact
from tests.ort.provider_models import HIDDEN, UNCOVERED, WIDTH, assert_equal_runs, feeds, model, options, plain_session

TRUST = {"trust_code": "1"}


class Counting(SparseNetworkCompiler):
    """A compiler that counts the networks it is asked for."""

    def __init__(self) -> None:
        self.count = 0

    def compile(self, digest: bytes, model: NetworkModel) -> tuple[str, Artefact]:
        self.count += 1
        return super().compile(digest, model)

    def recall(self, digest: bytes) -> Plan | None:
        return None

    def remember(self, digest: bytes, plan: Plan) -> None:
        pass


@pytest.fixture(autouse=True)
def compiler() -> Counting:
    """The compiler of all sessions."""
    register()
    counting = Counting()
    host().open(counting, minor_version(onnxruntime.__version__))
    return counting


SCALED = f"""
<ir_version: 8, opset_import: ["" : 17]>
scaled (float[n, {WIDTH}] x) => (float[n, {HIDDEN}] y) <float[1] factor = {{2.5}}>
{{
    m0 = MatMul (x, w0)
    a0 = Add (m0, b0)
    r0 = Relu (a0)
    y = Mul (r0, factor)
}}
"""


@cache
def original() -> onnx.ModelProto:
    return model(UNCOVERED)


def write_context(folder: Path, *, embedded: bool) -> Path:
    """Write m.onnx, and the model that onnxruntime made of it that holds our code, which is made once; return that."""
    shutil.copytree(made_once(embedded).name, folder, dirs_exist_ok=True)
    return folder / "compiled.onnx"


@cache
def made_once(embedded: bool) -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()
    path = Path(folder.name) / "m.onnx"
    path.write_bytes(original().SerializeToString())
    make_context(Path(folder.name), embedded=embedded, path=path)
    return folder


def make_context(folder: Path, *, embedded: bool, path: Path) -> Path:
    """Have onnxruntime make the model that holds our code of the model at a path."""
    target = folder / "compiled.onnx"
    made = options()
    for key, value in (("enable", "1"), ("embed_mode", str(int(embedded))), ("file_path", str(target))):
        made.add_session_config_entry(f"ep.context_{key}", value)
    made.add_provider_for_devices(register(), {})
    session = onnxruntime.InferenceSession(str(path), made)
    assert_equal_runs(session, plain_session(onnx.ModelProto.FromString(path.read_bytes())), feeds(7))
    return target


def load(source: Path | bytes, trust: dict[str, str] = TRUST) -> onnxruntime.InferenceSession:
    made = options()
    made.add_provider_for_devices(register(), trust)
    return onnxruntime.InferenceSession(source if isinstance(source, bytes) else str(source), made)


def assert_right(session: onnxruntime.InferenceSession) -> None:
    assert host().network_count == 2
    for batch in (0, 1, 17):
        assert_equal_runs(session, plain_session(original()), feeds(batch))


def contexts(proto: onnx.ModelProto) -> list[dict[str, onnx.AttributeProto]]:
    """The attributes of the nodes that hold code."""
    return [{one.name: one for one in node.attribute} for node in proto.graph.node if node.op_type == "EPContext"]


@pytest.mark.parametrize("embedded", [True, False])
def test_code_in_a_model_runs_without_being_compiled_where_it_is_trusted(
    tmp_path: Path, compiler: Counting, *, embedded: bool
) -> None:
    path = write_context(tmp_path, embedded=embedded)
    proto = onnx.ModelProto.FromString(path.read_bytes())
    assert len(contexts(proto)) == 2
    assert {tensor.name for tensor in proto.graph.initializer}.isdisjoint({"w0", "w2"})
    files = [*tmp_path.glob("*.pebble")]
    assert len(files) == (0 if embedded else 2)
    assert all(file.stat().st_mode == (tmp_path / "m.onnx").stat().st_mode for file in files)
    compiler.count = 0
    assert_right(load(path))
    assert compiler.count == 0


@pytest.mark.slow
@pytest.mark.parametrize("embedded", [True, False])
def test_code_that_is_not_trusted_is_compiled_anew(tmp_path: Path, compiler: Counting, *, embedded: bool) -> None:
    path = write_context(tmp_path, embedded=embedded)
    compiler.count = 0
    assert_right(load(path, {}))
    assert compiler.count == 2
    assert_right(load(path, {"trust_code": "0"}))
    assert compiler.count == 4


@pytest.mark.slow
def test_small_constants_are_those_of_the_model_when_code_is_not_trusted(tmp_path: Path) -> None:
    """onnxruntime shows them in memory that it frees before contexts are written."""
    proto = model(SCALED)
    (tmp_path / "small.onnx").write_bytes(proto.SerializeToString())
    session = load(make_context(tmp_path, embedded=True, path=tmp_path / "small.onnx"), {})
    assert host().network_count == 1
    assert_equal_runs(session, plain_session(proto), feeds(7))


def edited(path: Path, change: Callable[[dict[str, onnx.AttributeProto]], None]) -> bytes:
    """A model with the attributes of its first node of code changed."""
    proto = onnx.ModelProto.FromString(path.read_bytes())
    change(contexts(proto)[0])
    return proto.SerializeToString()


def signed(payload: bytes, changes: dict[str, Any], attachment: bytes | None = None) -> bytes:
    """A payload with other entries in its header and a checksum that fits."""
    start = len(MAGIC)
    length = int.from_bytes(payload[start : start + 8], "little")
    header, content = json.loads(payload[PROLOGUE_BYTES : PROLOGUE_BYTES + length]), payload[PROLOGUE_BYTES + length :]
    if attachment is not None:
        size = header["attachment"]
        content = attachment + bytes(-len(attachment) % 64) + content[size + -size % 64 :]
        changes = {**changes, "attachment": len(attachment)}
    words = json.dumps(header | changes).encode()
    words += b" " * (-(PROLOGUE_BYTES + len(words)) % 64)
    return MAGIC + NUMBERS.pack(len(words), zlib.crc32(words + content)) + words + content


NEW_FEATURE = {"cpu": "x86-64", "features": "+sse2,+some-new-feature", "lanes": 4}


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"format": 99}, {"machine": "riscv64"}, {"target": NEW_FEATURE}])
def test_code_of_another_format_or_for_another_cpu_is_compiled_anew(
    tmp_path: Path, compiler: Counting, changes: dict[str, Any]
) -> None:
    def change(attributes: dict[str, onnx.AttributeProto]) -> None:
        attributes["ep_cache_context"].s = signed(attributes["ep_cache_context"].s, changes)

    content = edited(write_context(tmp_path, embedded=True), change)
    compiler.count = 0
    assert_right(load(content))
    assert compiler.count == 1


def changed_byte(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


CHECKSUM, HEADER = "is damaged: its checksum does not match", "is damaged: its header cannot be read"
DAMAGES: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda payload: changed_byte(payload, len(payload) // 2), CHECKSUM),
    (lambda payload: changed_byte(payload, 100), CHECKSUM),
    (lambda payload: changed_byte(payload, 8), HEADER),
    (lambda payload: changed_byte(payload, 0), "is no compiled network"),
    (lambda payload: payload[:-1], CHECKSUM),
    (lambda payload: payload[:20], "is no compiled network"),
    (lambda payload: b"", "is no compiled network"),
    (lambda payload: signed(payload, {"attachment": "x"}), HEADER),
]


@pytest.mark.parametrize("trust", [TRUST, pytest.param({}, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_damaged_code_is_refused_before_any_of_it_is_used(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str, trust: dict[str, str]
) -> None:
    def change(attributes: dict[str, onnx.AttributeProto]) -> None:
        attributes["ep_cache_context"].s = damage(attributes["ep_cache_context"].s)

    content = edited(write_context(tmp_path, embedded=True), change)
    with pytest.raises(Exception, match=f"redpebble: the context of node 'Redpebble[^']*' {message}$"):
        load(content, trust)


@pytest.mark.slow
@pytest.mark.parametrize("attachment", [b"", b"12345678not compressed", (1 << 60).to_bytes(8, "little")])
def test_a_network_that_cannot_be_read_is_refused(tmp_path: Path, attachment: bytes) -> None:
    def change(attributes: dict[str, onnx.AttributeProto]) -> None:
        attributes["ep_cache_context"].s = signed(attributes["ep_cache_context"].s, {}, attachment)

    content = edited(write_context(tmp_path, embedded=True), change)
    with pytest.raises(Exception, match=r"the context of node 'Redpebble[^']*' holds no network: "):
        load(content, {})


def test_a_damaged_file_beside_the_model_is_refused(tmp_path: Path) -> None:
    path = write_context(tmp_path, embedded=False)
    file = next(tmp_path.glob("*_0.pebble"))
    content = file.read_bytes()
    file.write_bytes(changed_byte(content, len(content) - 5))
    with pytest.raises(Exception, match=f"{file.name} is damaged: its checksum does not match"):
        load(path)
    file.write_bytes(b"")
    with pytest.raises(Exception, match=f"{file.name} is no compiled network"):
        load(path)
    file.unlink()
    with pytest.raises(Exception, match=f"is file '{file.name}', which is missing in {tmp_path}"):
        load(path)


@pytest.mark.parametrize("place", ["../outside.pebble", "/etc/passwd", "", ".", "link.pebble"])
def test_a_file_elsewhere_than_beside_the_model_is_refused(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = write_context(folder, embedded=False)
    (tmp_path / "outside.pebble").write_bytes(next(folder.glob("*_0.pebble")).read_bytes())
    (folder / "link.pebble").symlink_to(tmp_path / "outside.pebble")

    def change(attributes: dict[str, onnx.AttributeProto]) -> None:
        attributes["ep_cache_context"].s = place.encode()

    path.write_bytes(edited(path, change))
    with pytest.raises(Exception, match=f"expected a file in the folder of the model, got '{place}'"):
        load(path)


def test_a_model_from_memory_says_where_its_files_are(tmp_path: Path) -> None:
    content = write_context(tmp_path, embedded=False).read_bytes()
    with pytest.raises(Exception, match=r"and the model has no path: state it as 'ep\.context_file_path'"):
        load(content)
    made = options()
    made.add_session_config_entry("ep.context_file_path", str(tmp_path / "compiled.onnx"))
    made.add_provider_for_devices(register(), TRUST)
    assert_right(onnxruntime.InferenceSession(content, made))


def test_a_node_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = write_context(tmp_path, embedded=True)

    def other_mode(attributes: dict[str, onnx.AttributeProto]) -> None:
        attributes["embed_mode"].i = 2

    with pytest.raises(Exception, match="expected embed_mode 0 or 1, got 2"):
        load(edited(path, other_mode))
    proto = onnx.ModelProto.FromString(path.read_bytes())
    node = next(one for one in proto.graph.node if one.op_type == "EPContext")
    del node.attribute[[one.name for one in node.attribute].index("ep_cache_context")]
    with pytest.raises(Exception, match=r"the context of node 'Redpebble[^']*' is missing"):
        load(proto.SerializeToString())


@pytest.mark.slow
@pytest.mark.parametrize("trust", [TRUST, {}])
def test_a_node_with_other_inputs_than_its_network_is_refused(tmp_path: Path, trust: dict[str, str]) -> None:
    proto = onnx.ModelProto.FromString(write_context(tmp_path, embedded=True).read_bytes())
    node = next(one for one in proto.graph.node if one.op_type == "EPContext")
    proto.graph.input.append(onnx.helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, ["n", 4]))
    node.input.append("more")
    with pytest.raises(Exception, match=r"node '[^']*' has 2 inputs, its network has 1"):
        load(proto.SerializeToString(), trust)


def test_what_was_compiled_is_not_compiled_again(tmp_path: Path) -> None:
    path = write_context(tmp_path, embedded=True)
    second = tmp_path / "second"
    second.mkdir()
    with pytest.raises(Exception, match="expected the model that it was made from, got one compiled before"):
        make_context(second, embedded=True, path=path)


def test_trust_is_said_by_0_or_1() -> None:
    made = options()
    made.add_provider_for_devices(register(), {"trust_code": "yes"})
    # without this onnxruntime's Python may go on without the provider, which depends on its version
    with pytest.raises(Exception, match="redpebble: option trust_code: expected '0' or '1', got 'yes'"):
        onnxruntime.InferenceSession(original().SerializeToString(), made, enable_fallback=0)
    assert host().network_count == 0


def test_a_model_says_for_which_machine_it_was_compiled(tmp_path: Path) -> None:
    proto = onnx.ModelProto.FromString(write_context(tmp_path, embedded=True).read_bytes())
    facts = {entry.key: entry.value for entry in proto.metadata_props}
    text = facts["ep_compatibility_info.RedpebbleExecutionProvider"]
    assert text == compatibility_text()
    # onnxruntime's Python has the function, and does not name it where the others are
    inside: Any = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    for told, answer in (
        (text, Compatibility.Best),
        (text + "+some-new-feature", Compatibility.BetterCompiledAnew),
        (text.replace("format=", "format=9"), Compatibility.BetterCompiledAnew),
        (text.replace("machine=", "machine=not_"), Compatibility.BetterCompiledAnew),
        (text.replace("layout=1", "layout=2"), Compatibility.Unsupported),
        ("RedpebbleExecutionProvider", Compatibility.Unsupported),
        ("OtherExecutionProvider;layout=1", Compatibility.NotOurs),
    ):
        assert compatibility_of(told) == answer
        assert int(inside.get_model_compatibility_for_ep_devices(register(), told)) == answer
