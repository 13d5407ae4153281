"""Models with sparse networks inside onnxruntime: native code for their nodes, from what the model file holds."""

import gc
import logging
import mmap
import os
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast
from weakref import WeakKeyDictionary

import onnxruntime

from ..driver.model_digest import model_digest
from ..export.sparse_networks.node_format import CODES_OP_TYPE, DOMAIN, OP_TYPE
from ..foundation.cache_folder import default_folder
from ..foundation.log import LOG
from ..foundation.threads import usable_threads
from ..lowering.calls.network_table import IN_ONNXRUNTIME, network_table, symbols_of
from ..runtime.jit import host_target
from ..runtime.store.artefact import Artefact
from ..runtime.store.cache import cache_key, load, store
from ..runtime.store.checked_file import keep, recalled
from ..runtime.store.kept_files import make_room, note_use
from .counters import count
from .custom_ops.node import one_line
from .model_looks import NOTHING_TAKEN, holds_networks, why_dense
from .native.tables import CODES_COUNT, OPERATOR_COUNT
from .network_code import code_key, compile_network, network_in_session, ready_code
from .session_arguments import SessionArguments

if TYPE_CHECKING:
    # the compiler takes seconds to load, and a session from the cache has no use for it
    import onnx_ir
    from xdsl.dialects.builtin import ModuleOp

    from ..frontend.import_model import Source


def get_library_path(operator_count: int = OPERATOR_COUNT) -> str:
    """Return the library to register with `SessionOptions.register_custom_ops_library` in this process.

    Nodes are compiled when a session is made, or come from the user's cache. A model with more than `operator_count`
    different networks runs the others as onnxruntime does without us; `session` asks for as many as a model has.
    """
    from .custom_ops.library import in_process_library, set_compiler

    set_compiler(network_in_session, operator_count)
    return str(in_process_library(operator_count))


def threads_of(options: onnxruntime.SessionOptions) -> int:
    """Return the threads that a session may have for a node: code for one is made in half the time of that for more."""
    usable, asked = usable_threads(), options.intra_op_num_threads
    return min(asked, usable) if asked > 0 and options.use_per_session_threads else usable


def optimized_session(model: "Source", given: SessionArguments, *, rows: int = 0) -> onnxruntime.InferenceSession:
    """Return the session of `redpebble.ort.any_model.session` for a model that may gain.

    Raises:
        ModelError: the model is unreadable.
        ValueError: rows are negative.
    """
    options = onnxruntime.SessionOptions() if given.options is None else given.options
    arguments = replace(given, options=options)
    wanted = _Wanted(threads_of(options), rows)
    plain = _opened(model, options, wanted, arguments.make)
    if not _may_have_free_images(plain) or holds_networks(model):
        return plain
    from .sized_session import SizedSession, images_of

    if (images := images_of(model)) is None:
        return plain
    opening = partial(optimized_session, given=given, rows=rows)
    return _opened(images.source, options, wanted, lambda ready: SizedSession(ready, arguments, images, opening))


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


class _Wanted(NamedTuple):
    threads: int
    rows: int  # that layers get at once, 0 for any number


class _Ready(NamedTuple):
    """A model for a session: the original, or the optimized model."""

    model: "onnx_ir.Model | bytes | str"
    is_original: bool = True
    is_recalled: bool = False
    """Whether it came from the cache, so that to optimize anew may help."""


def _opened(
    model: "Source", options: onnxruntime.SessionOptions, wanted: _Wanted, making: Making
) -> onnxruntime.InferenceSession:
    """Return a session of the optimized model, or of the original if onnxruntime refuses the optimized one."""
    made: list[str] = []
    refusal = ""
    try:
        for ready in _ways(model, wanted, made):
            given_up: list[str] = []
            try:
                found = _made_of(ready.model, options, making, given_up)
            except Exception as error:
                if ready.is_original:
                    raise
                refusal = one_line(error)
                continue
            if given_up and ready.is_recalled:
                continue
            if ready.is_original and refusal:
                given_up.append(f"the original model runs, since onnxruntime refuses the optimized one: {refusal}")
            for line in given_up:
                LOG.warning("%s", line)
            return found
        raise AssertionError("the last way is the model itself")
    finally:
        for key in made:
            ready_code().pop(key, None)


def _ways(model: "Source", wanted: _Wanted, made: list[str]) -> "Iterator[_Ready]":
    """Yield forms of a model that sessions can be made of, each where the ones before were of no use.

    The keys of code that was compiled on the way are added to `made`.
    """
    if holds_networks(model):
        yield _Ready(_as_it_is(model))
        return
    folder = default_folder()
    digest = model_digest(model, folder)
    path = (
        None if digest is None else folder / f"{cache_key(digest, host_target(), f'session rows={wanted.rows}')}.onnx"
    )
    content = None if path is None else recalled(path)
    if path is not None and content is not None:
        note_use(path)
        if content:
            LOG.info("the optimized model came from the cache, %s", folder)
            count("models_from_cache")
        else:
            LOG.warning(NOTHING_TAKEN, "no layer is taken, as was found before")
            count("models_left")
        yield _Ready(content or _as_it_is(model), is_original=not content, is_recalled=bool(content))
    ready = _made_ready(model, path, wanted, made)
    yield ready
    if not ready.is_original:
        yield _Ready(_as_it_is(model))


def _made_ready(model: "Source", path: Path | None, wanted: _Wanted, made: list[str]) -> _Ready:
    """Return an optimized model, and keep it in the cache, at `path`, where it can be kept there."""
    from ..export.save_model import model_bytes
    from ..runtime.memory import return_free_memory

    LOG.info("the model is optimized once, for the cache")
    ready = _compiled(model, wanted, made)
    if made:
        # what was compiled from is held by cycles, and may be several times the model
        gc.collect()
        return_free_memory()
    # of a model in which nothing can be gained no copy is kept, nor made
    content = b"" if ready.is_original else model_bytes(cast("onnx_ir.Model", ready.model))
    if path is not None and content is not None:
        keep(path, content)
        make_room(path.parent, path)
    return ready._replace(model=content) if content else ready


def _made_of(
    model: "onnx_ir.Model | bytes | str", options: onnxruntime.SessionOptions, making: Making, given_up: list[str]
) -> onnxruntime.InferenceSession:
    if isinstance(model, str | bytes):
        return _session_of(model, options, making, given_up)
    from ..export.loadable_model import loadable

    with loadable(model) as source:
        return _session_of(source, options, making, given_up)


def _as_it_is(model: "Source") -> "onnx_ir.Model | bytes | str":
    if isinstance(model, bytes):
        return model
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    from ..frontend.reading.model_source import read_model

    return read_model(model, any_version=True)


def _compiled(model: "Source", wanted: _Wanted, made: list[str]) -> _Ready:
    """Return an optimized model, and have the code for its networks ready: from the IR, which nodes only hold packed.

    A model without networks stays as it is: written anew it would be no faster, and round elsewhere. Keys of code are
    added to `made`.

    Raises:
        ModelError: the model is unreadable, or its functions are more than onnxruntime could write out.
    """
    import onnx
    import onnx_ir

    why = why_dense(model) if isinstance(model, onnx_ir.Model) else ""
    if why:
        LOG.warning(NOTHING_TAKEN, why)
        count("models_left")
        return _Ready(_as_it_is(model))
    from ..driver.compiler import network_code, optimized
    from ..frontend.reading.function_calls import check_written_out
    from ..frontend.reading.model_file import PROTOBUF_LIMIT
    from ..options import Options

    cpu = host_target()

    def on_network(identity: str, network: "ModuleOp") -> None:
        key = code_key(identity, cpu, wanted.threads)
        if load(default_folder(), key) is None:
            try:
                ready_code()[key] = network_code(network, wanted.threads, cpu, default_folder())
            except Exception as error:
                LOG.info("a network was not compiled from the IR: %s", one_line(error))
                return  # its node may be
            count("networks_compiled")
            made.append(key)
            store(default_folder(), key, ready_code()[key])

    begun = time.perf_counter()
    found = optimized(model, Options("optimize", rows=wanted.rows), on_network)
    count("models_optimized" if found.networks else "models_left")
    count("optimizing_seconds", time.perf_counter() - begun)
    if not found.networks:
        LOG.warning(NOTHING_TAKEN, found.obstacle)
    elif LOG.isEnabledFor(logging.INFO):  # the work is counted for this line alone
        LOG.info(
            "taken: %s; optimized and compiled in %.2f s",
            found.placement or "an unknown share",
            time.perf_counter() - begun,
        )
    check_written_out(found.model)
    if found.networks:
        return _Ready(found.model, is_original=False)
    if isinstance(model, onnx.ModelProto) and model.ByteSize() < PROTOBUF_LIMIT:
        return _Ready(model.SerializeToString())  # ten times as fast as to write what was read of it
    # reading a model in memory takes too long to do twice
    return _Ready(_as_it_is(model) if isinstance(model, str | os.PathLike | bytes) else found.model)


def _session_of(
    source: str | bytes, options: onnxruntime.SessionOptions, making: Making, given_up: list[str]
) -> onnxruntime.InferenceSession:
    from .custom_ops.library import set_compiler

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
    set_compiler(partial(network_in_session, threads=threads_of(options), given_up=given_up), known)
    return making(source)


def _keep_floats(options: onnxruntime.SessionOptions) -> None:
    """Let products of floats with weights of bytes be those, unless the options say what they are to be.

    onnxruntime rounds such floats to bytes of its own where the node that yields them is ours, not a DequantizeLinear.
    """
    try:
        options.get_session_config_entry(FLOATS_ENTRY)
    except RuntimeError:  # no such entry
        options.add_session_config_entry(FLOATS_ENTRY, "1")


@cache
def _registered() -> MutableMapping[onnxruntime.SessionOptions, int]:
    """Return the operators of the library that options have: onnxruntime refuses a second one, and does not tell."""
    return WeakKeyDictionary()


def _operator_count(content: bytes | mmap.mmap) -> int:
    """Return the number of operators of the smallest library for a model, a power of two: few libraries exist."""
    count = OPERATOR_COUNT
    while any(content.find(name.encode()) >= 0 for name in _names_beyond(count)):
        count *= 2
    return count


def _names_beyond(count: int) -> tuple[str, str]:
    return f"{OP_TYPE}_{count}", f"{CODES_OP_TYPE}_{count * CODES_COUNT // OPERATOR_COUNT}"


def write_library(model: "Source", path: Path) -> tuple[str, ...]:
    """Write native code for the sparse networks of a model: a library that runs them without Python, on any x86-64.

    Returns the levels of CPUs that one of the networks has code of its own for.

    Raises:
        ModelError: the model is unreadable.
        ValueError: the model has no sparse network, or none that becomes code; or this machine makes no libraries.
        OSError: the file cannot be written.
    """
    from ..foundation.atomic_files import replacing
    from ..frontend.errors import ModelError
    from ..frontend.reading.model_source import read_model
    from .custom_ops.library import build_library
    from .native.tables import LEVELS

    operators: dict[str, list[onnx_ir.Node]] = {}
    for graph in read_model(model).graphs():
        for node in graph:
            if node.domain == DOMAIN:
                operators.setdefault(node.op_type, []).append(node)
    variants: dict[str, dict[str, dict[str, Artefact]]] = {}
    reasons: list[str] = []
    for op_type, nodes in operators.items():
        try:
            variants[op_type] = _code_by_digest(nodes)
        except (ModelError, ValueError) as error:
            # an operator that the library does not know runs as its function
            reasons.append(f"{op_type} runs as its function, without native code: {one_line(error)}")
    if operators and not variants:
        raise ValueError("; ".join(reasons))
    for line in reasons:
        LOG.warning("%s", line)
    image = build_library({name: list(digests.items()) for name, digests in variants.items()}, path.name)
    with replacing(path) as file:
        file.write(image)
    made = {level for digests in variants.values() for artefacts in digests.values() for level in artefacts}
    return tuple(level for level in LEVELS if level in made)


def _code_by_digest(nodes: "Sequence[onnx_ir.Node]") -> dict[str, dict[str, Artefact]]:
    """Return the code of nodes of one operator: by the digest that a node states, and the level of CPUs.

    Raises:
        ModelError: a network is not covered.
        ValueError: a node was changed since it was written, or onnxruntime cannot have its sizes.
    """
    from ..export.sparse_networks.node_content import written
    from .custom_ops.library import code_of_levels

    found: dict[str, dict[str, Artefact]] = {}
    for node in nodes:
        op_type, attributes, constants = written(node)
        digest = str(attributes.get("digest", ""))
        if digest not in found:
            found[digest] = code_of_levels(partial(compile_network, op_type, attributes, constants))
    for artefact in (one for levels in found.values() for one in levels.values()):
        network_table(artefact.program, symbols_of(artefact.program, ""), IN_ONNXRUNTIME)
    return found
