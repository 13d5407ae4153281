"""EPContext nodes: networks in a model of onnxruntime's making, each with the native code it was compiled to.

What a node holds, in the model or in a file beside it, is a file of native code (`redpebble.runtime.store.artefact`) to
which the network is attached as a compressed ONNX model. Its checksum is looked at before anything else. The code is
used only where the session trusts it, and where its format, its kind of CPU and its features fit; otherwise the network
is compiled anew.
"""

import ctypes
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnx_ir
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from ...lowering.architectures import host_name
from ...lowering.cpu_target import CpuTarget
from ...lowering.program import FORMAT_VERSION
from ...runtime.jit import host_target, missing_features
from ...runtime.store.artefact import (
    Artefact,
    ArtefactError,
    Sealed,
    open_file,
    opened,
    sealed,
    write_artefact,
)
from ..custom_ops.node import OrtFunctions, Word
from ..native.ep_api import AttributeKind, Compatibility, ContextSlot, EditorSlot
from ..native.ep_library import EP_NAME
from .graph import Boundary, GraphNode, GraphReader
from .settings import FILE_PATH, EpSettings

OPERATOR: Final = ("com.microsoft", "EPContext")
PAYLOAD: Final = "ep_cache_context"

LAYOUT: Final = 1
"""Version of what a node holds; raised whenever it changes its meaning."""

SIZE_BYTES: Final = 8
MOST_BYTES: Final = 1 << 32
"""Bytes of a network: more than that is no model."""


def is_context(node: GraphNode) -> bool:
    """Return whether a node is one that we wrote."""
    return node.operator == OPERATOR and _text(node, "source") == EP_NAME


def attached(network: onnx.ModelProto) -> bytes:
    """Return a network as bytes: their size, and the compressed model."""
    content = network.SerializeToString()
    return len(content).to_bytes(SIZE_BYTES, "little") + zlib.compress(content, 1)


def detached(name: str, attachment: bytes) -> onnx.ModelProto:
    """Return the network that `attached` made bytes of.

    Raises:
        ValueError: it is damaged.
    """
    size = int.from_bytes(attachment[:SIZE_BYTES], "little")
    try:
        if not 0 < size <= MOST_BYTES:
            raise ValueError(f"{size} bytes")
        content = zlib.decompressobj().decompress(attachment[SIZE_BYTES:], size)
        return onnx.ModelProto.FromString(content)
    except (ValueError, zlib.error, DecodeError) as error:
        raise ValueError(f"{name} holds no network: {error}") from error


@dataclass(frozen=True)
class ContextReader:
    """Reads what nodes hold."""

    reader: GraphReader
    settings: EpSettings

    def open(self, node: GraphNode, graph: int) -> Sealed:
        """Return the content of a node, after a look at its checksum.

        Raises:
            ValueError: there is nothing, it is damaged, or it lies where it must not.
        """
        name = f"the context of node {node.name!r}"
        payload = self.reader.payload(node.handle, PAYLOAD)
        if payload is None:
            raise ValueError(f"{name} is missing")
        mode = _integer(node, "embed_mode", 1)
        if mode not in {0, 1}:
            raise ValueError(f"{name}: expected embed_mode 0 or 1, got {mode}")
        try:
            if mode == 1:
                return opened(payload, name)
            return open_file(self._beside(graph, name, payload))
        except ArtefactError as error:
            raise ValueError(str(error)) from error

    def _beside(self, graph: int, name: str, payload: NDArray[np.uint8]) -> Path:
        """Return the file that a payload names: it must lie in the folder of the model."""
        file = payload.tobytes().decode(errors="replace")
        model = model_path(self.reader.functions, graph) or self.settings.context_path
        if not model:
            raise ValueError(f"{name} is file {file!r}, and the model has no path: state it as {FILE_PATH!r}")
        folder = Path(model).absolute().parent.resolve()
        path = (folder / file).resolve()
        if path == folder or not path.is_relative_to(folder):
            raise ValueError(f"{name}: expected a file in the folder of the model, got {file!r}")
        if not path.is_file():
            raise ValueError(f"{name} is file {file!r}, which is missing in {folder}")
        return path


def fitting(held: Sealed) -> Artefact | None:
    """Return the code that a node holds, None where it is not for this machine and this version."""
    try:
        return held.artefact()
    except ArtefactError:
        return None


def check_boundary(name: str, found: Boundary, stated: Boundary, artefact: Artefact) -> None:
    """Check that a node has the inputs and outputs that it states, in any order of outputs, and that its network has.

    Raises:
        ValueError: it has others.
    """
    sides = (artefact.program.inputs, artefact.program.outputs)
    for what, names, tensors in zip(("inputs", "outputs"), stated, sides, strict=True):
        if len(names) != len(tensors):
            raise ValueError(f"node {name!r} has {len(names)} {what}, its network has {len(tensors)}")
    if found[0] != stated[0] or sorted(found[1]) != sorted(stated[1]):
        used, given = (", ".join((*inputs, *outputs)) for inputs, outputs in (found, stated))
        raise ValueError(f"node {name!r} is used with {used}, and has {given}")


def model_path(functions: OrtFunctions, graph: int) -> str:
    """Return the path that a model was loaded from, empty for one from memory."""
    address = functions.word(ContextSlot.Graph_GetModelPath, graph)
    return ctypes.string_at(address).decode(errors="replace") if address else ""


@dataclass(frozen=True)
class ContextWriter:
    """Makes nodes."""

    functions: OrtFunctions
    settings: EpSettings

    def node(self, name: str, boundary: Boundary, payload: bytes) -> int:
        """Return an `OrtNode`, which onnxruntime owns from then on; `payload` is code, or the name of its file."""
        embeds = self.settings.embeds
        attributes = [
            self._integer("main_context", 1),
            self._integer("embed_mode", int(embeds)),
            self._text(PAYLOAD, payload),
            self._text("ep_sdk_version", str(FORMAT_VERSION).encode()),
            self._text("hardware_architecture", host_name().encode()),
            self._text("partition_name", name.encode()),
            self._text("source", EP_NAME.encode()),
        ]
        get_editor = ctypes.CFUNCTYPE(ctypes.c_void_p)(self.functions.function(ContextSlot.GetModelEditorApi))
        editor = OrtFunctions(get_editor() or 0, self.functions.address)
        # in lists that live until the call is over
        inputs, outputs = (_texts(names) for names in boundary)
        handles = (ctypes.c_uint64 * len(attributes))(*attributes)
        words: list[Word] = [OPERATOR[1].encode(), OPERATOR[0].encode(), name.encode()]
        for array in (inputs, outputs, handles):
            words += [ctypes.addressof(array), len(array)]
        return editor.word(EditorSlot.CreateNode, *words)  # which owns the attributes from then on

    def payload(self, name: str, graph: int, artefact: Artefact, network: onnx.ModelProto) -> bytes:
        """Return the content for a node: the code itself, or the name of the file that was written."""
        if self.settings.embeds:
            return b"".join(sealed(artefact, attached(network)))
        path = self._file(name, graph)
        write_artefact(path, artefact, attached(network))
        model = Path(model_path(self.functions, graph))
        if model.is_file():
            path.chmod(model.stat().st_mode & 0o666)  # who may read the one may read the other
        return path.name.encode()

    def _file(self, name: str, graph: int) -> Path:
        """Return the file for a node: beside the model that onnxruntime is going to write."""
        stated = self.settings.context_path
        model = model_path(self.functions, graph)
        if not stated and not model:
            raise ValueError(f"the context has no place: embed it, or state {FILE_PATH!r}")
        target = Path(stated) if stated else Path(model).with_name(f"{Path(model).stem}_ctx.onnx")
        number = name.rpartition(f"{EP_NAME}_")[2]
        return target.with_name(f"{target.stem}_{number}.pebble")

    def _integer(self, name: str, value: int) -> int:
        content = ctypes.c_int64(value)
        return self._attribute(name, ctypes.addressof(content), 1, AttributeKind.Integer)

    def _text(self, name: str, value: bytes) -> int:
        return self._attribute(name, value, len(value), AttributeKind.Text)

    def _attribute(self, name: str, content: Word, size: int, kind: AttributeKind) -> int:
        return self.functions.word(ContextSlot.CreateOpAttr, name.encode(), content, size, int(kind))


def _texts(names: Sequence[str]) -> "ctypes.Array[ctypes.c_char_p]":
    return (ctypes.c_char_p * len(names))(*(name.encode() for name in names))


def _attribute(node: GraphNode, name: str) -> onnx_ir.Attr | None:
    return next((attribute for attribute in node.attributes if attribute.name == name), None)


def _text(node: GraphNode, name: str) -> str:
    attribute = _attribute(node, name)
    return "" if attribute is None or attribute.type != onnx_ir.AttributeType.STRING else attribute.as_string()


def _integer(node: GraphNode, name: str, default: int) -> int:
    attribute = _attribute(node, name)
    return default if attribute is None or attribute.type != onnx_ir.AttributeType.INT else attribute.as_int()


def compatibility_text() -> str:
    """Return the metadata of a model on the code it holds, which onnxruntime stores."""
    features = [feature for feature in host_target().features.split(",") if feature.startswith("+")]
    facts = [f"layout={LAYOUT}", f"format={FORMAT_VERSION}", f"machine={host_name()}", f"features={''.join(features)}"]
    return ";".join([EP_NAME, *facts])


def compatibility_of(text: str) -> Compatibility:
    """Return how well code fits this machine of which a model says `text`; onnxruntime asks when it loads a model."""
    name, *entries = text.split(";")
    if name != EP_NAME:
        return Compatibility.NotOurs
    facts = {key: value for key, _, value in (entry.partition("=") for entry in entries)}
    if facts.get("layout") != str(LAYOUT):
        return Compatibility.Unsupported
    fits = facts.get("format") == str(FORMAT_VERSION) and facts.get("machine") == host_name()
    needed = CpuTarget("", facts.get("features", "").replace("+", ",+"), 0, host_name())
    # else the network lies beside the code, and can be compiled for this machine
    return Compatibility.Best if fits and not missing_features(needed) else Compatibility.BetterCompiledAnew
