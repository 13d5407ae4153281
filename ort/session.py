"""Models with sparse networks inside onnxruntime: native code for their nodes, from what the model file holds."""

import gc
import hashlib
import logging
import mmap
import os
import time
from collections.abc import Callable, MutableMapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import onnxruntime

from redpebble.export.sparse_networks.node_format import CODES_OP_TYPE, DOMAIN, FORMAT, OP_TYPE
from redpebble.foundation.log import LOG
from redpebble.foundation.threads import usable_threads
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.model_digest import model_digest
from redpebble.ort.native.tables import CODES_COUNT, OPERATOR_COUNT
from redpebble.runtime.jit import host_target
from redpebble.runtime.store.artefact import Artefact
from redpebble.runtime.store.cache import cache_key, default_folder, load, store
from redpebble.runtime.store.checked_file import keep, recalled
from redpebble.runtime.store.kept_files import make_room, note_use

if TYPE_CHECKING:
    # the compiler takes seconds to load, and a session from the cache has no use for it
    import onnx_ir
    from xdsl.dialects.builtin import ModuleOp

    from redpebble.export.sparse_networks.node_content import Attributes, Constants
    from redpebble.frontend.import_model import Source

OPTIONS: Final = "sparse network"
"""The salt that sets the code of a node apart in the cache from that of a model."""


def checked_digest(op_type: str, attributes: "Attributes", constants: "Constants") -> bytes:
    """Return the digest of what a node computes.

    Raises:
        ValueError: the node is not one that this version wrote, or was changed since.
    """
    version = attributes.get("format")
    if version != FORMAT:
        raise ValueError(f"{op_type}: the network has format {version}, accepted is {FORMAT}")
    digest = hashlib.sha256(str(attributes.get("network", "")).encode())
    for index, array in enumerate(constants):
        if array is None:
            raise ValueError(f"{op_type}: constant {index} is computed, accepted is an initializer")
        digest.update(array.tobytes())
    if digest.hexdigest() != attributes.get("digest"):
        raise ValueError(f"{op_type}: network and constants do not have the digest that the node states")
    return digest.digest()


def compile_network(
    op_type: str,
    attributes: "Attributes",
    constants: "Constants",
    target: CpuTarget | None = None,
    *,
    threads: int | None = None,
) -> Artefact:
    """Return native code for a node, from the user's cache where it was compiled before.

    It is cut for `threads` threads, None for all that this process may use; it runs on more and on fewer as well.

    Raises:
        ValueError: the node is not one that this version wrote, or was changed since.
        ModelError: the network is not covered.
    """
    cpu = host_target() if target is None else target
    threads = threads or usable_threads()
    key = _key_of(checked_digest(op_type, attributes, constants), cpu, threads)
    artefact = _ready().get(key) or load(default_folder(), key)
    if artefact is None:
        from redpebble.compiler import native_code
        from redpebble.export.sparse_networks.node_content import network_model
        from redpebble.options import Options

        model = network_model(op_type, attributes, constants)
        artefact = native_code(model, Options(threads=threads, is_node=True), target=cpu, cache=False)
        store(default_folder(), key, artefact)
    return artefact


def _key_of(digest: bytes, cpu: CpuTarget, threads: int) -> str:
    return cache_key(digest, cpu, f"{OPTIONS} threads={threads}")


@cache
def _ready() -> dict[str, Artefact]:
    """Return the code, by key, of sessions that are being made: no cache may hold it."""
    return {}


def get_library_path(operator_count: int = OPERATOR_COUNT) -> str:
    """Return the library to register with `SessionOptions.register_custom_ops_library` in this process.

    Nodes are compiled when a session is made, or come from the user's cache. A model with more than `operator_count`
    different networks runs the others as onnxruntime does without us; `session` asks for as many as a model has.
    """
    from redpebble.ort.custom_ops.library import in_process_library, set_compiler

    set_compiler(compile_network, operator_count)
    return str(in_process_library(operator_count))


def threads_of(options: onnxruntime.SessionOptions) -> int:
    """Return the threads that a session may have for a node: code for one is made in half the time of that for more."""
    usable, asked = usable_threads(), options.intra_op_num_threads
    return min(asked, usable) if asked > 0 and options.use_per_session_threads else usable


def session(
    model: "Source",
    sess_options: onnxruntime.SessionOptions | None = None,
    providers: Sequence[str] | None = None,
) -> onnxruntime.InferenceSession:
    """Return a session of onnxruntime with our kernels inside.

    A model without sparse networks is optimized first, and kept in the user's cache for the next session. One with
    sparse convolutions on images of any size is made ready for a size when it is first called with that.

    Raises:
        ModelError: the model is unreadable.
    """
    names = ["CPUExecutionProvider"] if providers is None else list(providers)
    options = onnxruntime.SessionOptions() if sess_options is None else sess_options
    plain = _opened(model, options, lambda ready: onnxruntime.InferenceSession(ready, options, providers=names))
    if not _may_have_free_images(plain) or holds_networks(model):
        return plain
    from redpebble.ort.sized_session import SizedSession, images_of

    images = images_of(model)
    if images is None:
        return plain
    opening = partial(session, sess_options=sess_options, providers=providers)
    return _opened(images.source, options, lambda ready: SizedSession(ready, options, names, images, opening))


NOTHING_TAKEN: Final = "redpebble.session is as fast as onnxruntime here: %s; see why-not-faster"
"""The warning of a session in which no code of ours runs."""

ROUNDING = b"QuantizeLinear"
"""Operator of models whose values are bytes; those of which only the weights are have none."""

FLOATS_ENTRY = "session.qdq_matmulnbits_accuracy_level"
"""Exactness of what onnxruntime computes of floats and weights of bytes: 1 with floats, 4, unless told, with bytes."""

Making = Callable[[str | bytes], onnxruntime.InferenceSession]
"""Makes a session of a file that is ready, or of its bytes."""


def _may_have_free_images(made: onnxruntime.InferenceSession) -> bool:
    """Return whether an input looks like images of any height and width: a question that reads no model."""
    shapes = [list(value.shape) for value in made.get_inputs() if value.type.startswith("tensor(")]
    images = [shape for shape in shapes if len(shape) in (3, 4) and isinstance(shape[1], int)]
    return any(not isinstance(size, int) or size < 1 for shape in images for size in shape[2:])


def _opened(model: "Source", options: onnxruntime.SessionOptions, making: Making) -> onnxruntime.InferenceSession:
    """Return a session of a model, optimized where it is not yet."""
    made: list[str] = []
    try:
        ready = _ready_model(model, threads_of(options), made)
        if made:
            from redpebble.runtime.memory import return_free_memory

            # what was compiled from is held by cycles, and may be several times the model
            gc.collect()
            return_free_memory()
        if isinstance(ready, str | bytes):
            return _session_of(ready, options, making)
        from redpebble.export.loadable_model import loadable

        with loadable(ready) as source:
            return _session_of(source, options, making)
    finally:
        for key in made:
            _ready().pop(key, None)


def _ready_model(model: "Source", threads: int, made: list[str]) -> "onnx_ir.Model | bytes | str":
    """Return a model with sparse networks: as it is, or optimized, as the cache has it where it can be kept there.

    The keys of code that was compiled on the way are added to `made`.
    """
    if holds_networks(model):
        return _as_it_is(model)
    folder = default_folder()
    digest = model_digest(model, folder)
    if digest is None:
        return _compiled(model, threads, made)
    path = folder / f"{cache_key(digest, host_target(), 'session')}.onnx"
    content = recalled(path)
    if content is not None:
        note_use(path)
        if holds_networks(content):
            LOG.info("the optimized model came from the cache, %s", folder)
        else:
            LOG.warning(NOTHING_TAKEN, "no layer is taken, as was found before")
        return content or _as_it_is(model)
    import onnx_ir

    from redpebble.export.save_model import model_bytes

    LOG.info("the model is optimized once, for the cache")
    ready = _compiled(model, threads, made)
    # of a model in which nothing can be gained no copy is kept, nor made
    content = model_bytes(ready) if isinstance(ready, onnx_ir.Model) else b""
    if content is None:
        return ready
    keep(path, content)
    make_room(folder, path)
    return content or ready


def _as_it_is(model: "Source") -> "onnx_ir.Model | bytes | str":
    """Return a model in a form that sessions are made of."""
    if isinstance(model, bytes):
        return model
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    from redpebble.frontend.reading.model_source import read_model

    return read_model(model, any_version=True)


def _compiled(model: "Source", threads: int, made: list[str]) -> "onnx_ir.Model | bytes | str":
    """Return an optimized model, and have the code for its networks ready: from the IR, which nodes only hold packed.

    A model of which nothing is known, as it is too large for what it holds, stays as it is.

    The keys of the code are added to `made`.

    Raises:
        ModelError: the model is unreadable, or its functions are more than onnxruntime could write out.
    """
    import onnx

    from redpebble.compiler import network_code, optimized
    from redpebble.frontend.reading.function_calls import check_written_out
    from redpebble.frontend.reading.model_file import PROTOBUF_LIMIT
    from redpebble.options import Options

    cpu = host_target()

    def on_network(digest: str, network: "ModuleOp") -> None:
        key = _key_of(bytes.fromhex(digest), cpu, threads)
        if load(default_folder(), key) is None:
            _ready()[key] = network_code(network, threads, cpu, default_folder())
            made.append(key)
            store(default_folder(), key, _ready()[key])

    begun = time.perf_counter()
    found = optimized(model, Options("optimize"), on_network)
    if not found.networks:
        LOG.warning(NOTHING_TAKEN, found.obstacle)
    elif LOG.isEnabledFor(logging.INFO):  # the work is counted for this line alone
        LOG.info(
            "taken: %s; optimized and compiled in %.2f s",
            found.placement or "an unknown share",
            time.perf_counter() - begun,
        )
    check_written_out(found.model)
    if found.left is not None or found.networks:
        return found.model
    if isinstance(model, onnx.ModelProto) and model.ByteSize() < PROTOBUF_LIMIT:
        return model.SerializeToString()  # ten times as fast as to write what was read of it
    # a model in memory was read as it is, which takes too long to do twice
    return _as_it_is(model) if isinstance(model, str | os.PathLike | bytes) else found.model


def _session_of(
    source: str | bytes, options: onnxruntime.SessionOptions, making: Making
) -> onnxruntime.InferenceSession:
    from redpebble.ort.custom_ops.library import set_compiler

    if isinstance(source, bytes):
        count, rounds = _operator_count(source), ROUNDING in source
    else:
        with open(source, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            count, rounds = _operator_count(content), content.find(ROUNDING) >= 0
    if rounds:
        _keep_floats(options)
    known = _registered().get(options)
    if known is None:
        options.register_custom_ops_library(get_library_path(count))
        _registered()[options] = known = count
    elif known < count:
        LOG.warning("options of a smaller model are used again: networks from number %d on are not compiled", known)
    set_compiler(partial(compile_network, threads=threads_of(options)), known)
    return making(source)


def _keep_floats(options: onnxruntime.SessionOptions) -> None:
    """Let products of floats with weights of bytes be those, unless the options say what they are to be.

    onnxruntime rounds such floats to bytes of its own where the node that yields them is ours, not a DequantizeLinear.
    """
    try:
        options.get_session_config_entry(FLOATS_ENTRY)
    except RuntimeError:  # nothing is said
        options.add_session_config_entry(FLOATS_ENTRY, "1")


@cache
def _registered() -> MutableMapping[onnxruntime.SessionOptions, int]:
    """Return the operators of the library that options have: onnxruntime refuses a second one, and does not tell."""
    return WeakKeyDictionary()


def _operator_count(content: bytes | mmap.mmap) -> int:
    """Return a number of operators that has all those of a model: a power of two, since few libraries should differ."""
    count = OPERATOR_COUNT
    while any(content.find(name.encode()) >= 0 for name in _names_beyond(count)):
        count *= 2
    return count


def _names_beyond(count: int) -> tuple[str, str]:
    return f"{OP_TYPE}_{count}", f"{CODES_OP_TYPE}_{count * CODES_COUNT // OPERATOR_COUNT}"


def holds_networks(model: "Source") -> bool:
    """Return whether a model has nodes of ours; a file is searched for our domain, which is faster than reading it."""
    if isinstance(model, bytes):
        return DOMAIN.encode() in model
    if isinstance(model, str | os.PathLike):
        try:
            with Path(model).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return content.find(DOMAIN.encode()) >= 0
        except (OSError, TypeError, ValueError):
            return False
    return _lists_our_domain(model)


def _lists_our_domain(model: object) -> bool:
    import onnx
    import onnx_ir

    match model:
        case onnx.ModelProto():
            return any(entry.domain == DOMAIN for entry in model.opset_import)
        case onnx_ir.Model():
            return DOMAIN in model.opset_imports
        case _:
            return False


def write_library(model: "Source", path: Path) -> tuple[str, ...]:
    """Write native code for the sparse networks of a model: a library that runs them without Python, on any x86-64.

    Returns the levels of CPUs that one of the networks has code of its own for.

    Raises:
        ModelError: the model is unreadable.
        ValueError: the model has no sparse network, or this machine makes no libraries.
        OSError: the file cannot be written.
    """
    from redpebble.export.sparse_networks.node_content import written
    from redpebble.foundation.atomic_files import replacing
    from redpebble.frontend.reading.model_source import read_model
    from redpebble.ort.custom_ops.library import build_library, code_of_levels
    from redpebble.ort.native.tables import LEVELS

    variants: dict[str, dict[str, dict[str, Artefact]]] = {}
    for node in read_model(model).graph:
        if node.domain != DOMAIN:
            continue
        op_type, attributes, constants = written(node)
        digests = variants.setdefault(op_type, {})
        digest = str(attributes.get("digest", ""))
        if digest not in digests:
            digests[digest] = code_of_levels(partial(compile_network, op_type, attributes, constants))
    image = build_library({name: list(digests.items()) for name, digests in variants.items()}, path.name)
    with replacing(path) as file:
        file.write(image)
    made = {level for digests in variants.values() for artefacts in digests.values() for level in artefacts}
    return tuple(level for level in LEVELS if level in made)
