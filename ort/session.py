"""Models with sparse networks inside onnxruntime: native code for their nodes, from what the model file holds."""

import gc
import json
import logging
import mmap
import os
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from weakref import WeakKeyDictionary

import onnxruntime

from ..driver.model_digest import model_digest
from ..export.sparse_networks.node_format import CODES_OP_TYPE, DOMAIN, OP_TYPE
from ..foundation.cache_folder import default_folder
from ..foundation.choices import NO_CHOICES, Choices
from ..foundation.garbage_collection import rare_collections
from ..foundation.log import LOG
from ..foundation.one_at_a_time import one_at_a_time
from ..foundation.threads import usable_threads
from ..frontend.reading.axis_names import Axes, words_of
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
from .reported_session import ReportedSession
from .session_arguments import SessionArguments, Sizes, Wanted

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


def optimized_session(
    model: "Source",
    given: SessionArguments,
    *,
    rows: int = 0,
    sizes: Sequence[Sizes] = (),
    choices: Choices = NO_CHOICES,
) -> ReportedSession:
    """Return the session of `redpebble.ort.any_model.session` for a model that may gain.

    Raises:
        ModelError: the model is unreadable.
        ValueError: rows are negative, or sizes are not those of the axes that code waits for.
    """
    options = onnxruntime.SessionOptions() if given.options is None else given.options
    arguments = replace(given, options=options)
    wanted = Wanted(threads_of(options), rows, choices=choices)

    def making(ready: str | bytes, axes: Axes) -> ReportedSession:
        return _sized(model, arguments, wanted, ready, axes) if axes else arguments.make(ready)

    made = _opened(model, options, wanted, making)
    if made is None:
        raise AssertionError("without sizes a session of the model itself is of use")
    if sizes:
        from .sized_session import prepare

        prepare(made, sizes)
    return made


def _sized(
    model: "Source", arguments: SessionArguments, wanted: Wanted, ready: str | bytes, axes: Axes
) -> ReportedSession:
    """Return a session of `ready` for calls of all sizes, whose code waits for those of `axes`."""
    from .code_of_sizes import CodeOfSizes, Opening
    from .sized_session import CountedSizedSession, SizedSession

    kind = CountedSizedSession if arguments.count_calls else SizedSession
    single = replace(arguments, count_calls=False)
    source, options = _kept_source(model), arguments.options or onnxruntime.SessionOptions()
    digest, is_file = model_digest(source, default_folder()), isinstance(source, str)
    wanted = wanted._replace(digest=b"" if is_file else digest or b"")

    def is_cached(sizes: Sizes) -> bool:
        if is_file and model_digest(source, default_folder()) != digest:
            raise ValueError("the file of the model has changed since the session was made")
        path = _place(source, wanted.with_sizes(sizes))
        return path is not None and path.is_file()

    def make(sizes: Sizes) -> ReportedSession | None:
        return _opened(source, options, wanted.with_sizes(sizes), lambda made, _: single.make(made))

    file = source if isinstance(source, str | bytes) else None
    return kind(ready, arguments, axes, CodeOfSizes(file, wanted, Opening(is_cached, make)))


def _kept_source(model: "Source") -> "str | bytes | onnx_ir.Model":
    """Return a model that is read once more for each size: a file, or its bytes, of which the cache has a digest."""
    if isinstance(model, bytes):
        return model
    if isinstance(model, str | os.PathLike):
        return os.path.abspath(os.fspath(model))
    from ..export.save_model import model_bytes
    from ..frontend.reading.model_source import read_model

    read = read_model(model, any_version=True)
    return model_bytes(read) or read


ROUNDING = b"QuantizeLinear"
"""Operator of models whose values are bytes; those of which only the weights are have none."""

FLOATS_ENTRY = "session.qdq_matmulnbits_accuracy_level"
"""Exactness of what onnxruntime computes of floats and weights of bytes: 1 with floats, 4, unless told, with bytes."""

Making = Callable[[str | bytes, Axes], ReportedSession]
"""Makes a session of a file that is ready, or of its bytes, and of the axes that code waits for the sizes of."""


class _Ready(NamedTuple):
    """A model for a session: the original, or the optimized model."""

    model: "onnx_ir.Model | bytes | str"
    is_original: bool = True
    is_recalled: bool = False
    """Whether it came from the cache, so that to optimize anew may help."""
    axes: Axes = MappingProxyType({})
    """The axes that code waits for the sizes of."""
    taken: str = ""
    """A line on the layers that have code, where it was wanted."""


def _opened(
    model: "Source", options: onnxruntime.SessionOptions, wanted: Wanted, making: Making
) -> ReportedSession | None:
    """Return a session of the optimized model, or of the original if onnxruntime refuses the optimized one.

    With sizes there is none of the original, which runs inputs of all sizes.
    """
    made: list[str] = []
    refusal = ""
    try:
        for ready in _ways(model, wanted, made):
            if ready.is_original and wanted.sizes:
                return None
            given_up: list[str] = []
            try:
                found = _made_of(ready, options, making, given_up)
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


def fill_cache(model: "Source", wanted: Wanted) -> None:
    """Keep the optimized model and its code in the cache, for a session of it.

    Raises:
        ModelError: the model is unreadable.
        ValueError: it has no such sizes.
    """
    made: list[str] = []
    next(_ways(model, wanted, made))
    for key in made:
        ready_code().pop(key, None)


def _place(model: "Source", wanted: Wanted) -> Path | None:
    """Return the place of an optimized model in the cache; None for a model of which there is no digest."""
    folder = default_folder()
    digest = wanted.digest or model_digest(model, folder)
    return None if digest is None else folder / f"{cache_key(digest, host_target(), wanted.salt)}.onnx"


def _ways(model: "Source", wanted: Wanted, made: list[str]) -> "Iterator[_Ready]":
    """Yield forms of a model that sessions can be made of, each where the ones before were of no use.

    The keys of code that was compiled on the way are added to `made`.
    """
    # of a model that gets sizes this was found out before
    if not wanted.sizes and holds_networks(model):
        yield _Ready(_as_it_is(model))
        return
    path = _place(model, wanted)
    found = _recalled_ready(model, path, wanted)
    if found is not None:
        yield found
    with one_at_a_time(path):
        # another process may have made it while this one waited
        ready = _recalled_ready(model, path, wanted) if found is None else None
        if ready is None:
            ready = _made_ready(model, path, wanted, made)
    yield ready
    if ready.is_recalled:
        ready = _made_ready(model, path, wanted, made)
        yield ready
    if not ready.is_original:
        yield _Ready(_as_it_is(model), axes=ready.axes)


def _recalled_ready(model: "Source", path: Path | None, wanted: Wanted) -> _Ready | None:
    """Return an optimized model from its place in the cache, None where it is not there."""
    content = None if path is None else recalled(path)
    note = None if path is None or content is None else _recalled_note(path)
    if path is None or content is None or note is None:
        return None
    axes, taken = note
    note_use(path)
    if content:
        LOG.info("the optimized model came from the cache, %s%s", path.parent, f"; {taken}" if taken else "")
        count("models_from_cache")
    else:
        _tell_nothing_taken("no layer is taken, as was found before", axes, wanted)
    return _Ready(content or _as_it_is(model), not content, is_recalled=bool(content), axes=axes)


@rare_collections()
def _made_ready(model: "Source", path: Path | None, wanted: Wanted, made: list[str]) -> _Ready:
    """Return an optimized model, and keep it in the cache, at `path`, where it can be kept there."""
    from ..driver.stated_sizes import with_sizes
    from ..export.save_model import model_bytes
    from ..runtime.memory import return_free_memory

    LOG.info("the model is optimized once, for the cache")
    ready = _compiled(with_sizes(model, dict(wanted.sizes)), wanted, made)
    if made:
        # what was compiled from is held by cycles, and may be several times the model
        gc.collect()
        return_free_memory()
    # of a model in which nothing can be gained no copy is kept, nor made
    content = b"" if ready.is_original else model_bytes(cast("onnx_ir.Model", ready.model))
    if path is not None and content is not None:
        note = {"axes": dict(ready.axes), "taken": ready.taken}
        keep(path.with_suffix(NOTE_SUFFIX), json.dumps(note).encode())
        keep(path, content)
        make_room(path.parent, path)
    return ready._replace(model=content) if content else ready


NOTE_SUFFIX: Final = ".note"
"""Suffix of the file in the cache, beside an optimized model, with the rest of what is known of it."""


def _recalled_note(path: Path) -> tuple[Axes, str] | None:
    """Return the axes that code waits for the sizes of, and the line on what was taken."""
    content = recalled(path.with_suffix(NOTE_SUFFIX))
    if content is None:
        return None
    note = json.loads(content)
    return {name: tuple(words) for name, words in note["axes"].items()}, note["taken"]


def _tell_nothing_taken(why: str, axes: Axes, wanted: Wanted) -> None:
    """Warn that nothing is taken of a model, unless code is made for the sizes of calls."""
    if axes or wanted.sizes:
        waits = f"code waits for the sizes of calls: {', '.join(words_of(axes))}" if axes else "nothing is taken"
        LOG.info("%s; for all sizes: %s" if axes else "%s: %s", waits, why)
        return
    LOG.warning(NOTHING_TAKEN, why)
    count("models_left")


def _made_of(
    ready: _Ready, options: onnxruntime.SessionOptions, making: Making, given_up: list[str]
) -> ReportedSession:
    def made(source: str | bytes) -> ReportedSession:
        return making(source, ready.axes)

    if isinstance(ready.model, str | bytes):
        return _session_of(ready.model, options, made, given_up)
    from ..export.loadable_model import loadable

    with loadable(ready.model) as source:
        return _session_of(source, options, made, given_up)


def _as_it_is(model: "Source") -> "onnx_ir.Model | bytes | str":
    if isinstance(model, bytes):
        return model
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    from ..frontend.reading.model_source import read_model

    return read_model(model, any_version=True)


def _compiled(model: "Source", wanted: Wanted, made: list[str]) -> _Ready:
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
    from ..driver.axes_of_code import sizes_to_wait_for
    from ..driver.compiler import network_code, optimized, with_choices
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
    found = optimized(model, with_choices(Options("optimize", rows=wanted.rows), wanted.choices), on_network)
    axes = sizes_to_wait_for(None if wanted.sizes else found.left)
    if found.networks:
        count("models_optimized")
    count("optimizing_seconds", time.perf_counter() - begun)
    if not found.networks:
        _tell_nothing_taken(found.obstacle, axes, wanted)
    taken = ""
    if found.networks and LOG.isEnabledFor(logging.INFO):  # the work is counted for this line alone
        seconds, taken = time.perf_counter() - begun, f"taken: {found.placement or 'an unknown share'}"
        LOG.info("%s; optimized and compiled in %.2f s", taken, seconds)
    check_written_out(found.model)
    if found.networks:
        return _Ready(found.model, is_original=False, axes=axes, taken=taken)
    if isinstance(model, onnx.ModelProto) and model.ByteSize() < PROTOBUF_LIMIT:
        return _Ready(model.SerializeToString(), axes=axes)  # ten times as fast as to write what was read of it
    # reading a model in memory takes too long to do twice
    return _Ready(_as_it_is(model) if isinstance(model, str | os.PathLike | bytes) else found.model, axes=axes)


def _session_of(
    source: str | bytes,
    options: onnxruntime.SessionOptions,
    making: Callable[[str | bytes], ReportedSession],
    given_up: list[str],
) -> ReportedSession:
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


def write_library(model: "Source", path: Path, architecture: str = "") -> tuple[str, ...]:
    """Write native code for the sparse networks of a model: a library that runs them without Python.

    It runs on Linux, on any CPU of an architecture: `x86_64` or `aarch64`, this machine's by default.

    Returns the levels of CPUs that one of the networks has code of its own for.

    Raises:
        ModelError: the model is unreadable.
        ValueError: the model has no sparse network, or none that becomes code; or there are no libraries for that
            architecture.
        OSError: the file cannot be written.
    """
    from ..foundation.atomic_files import replacing
    from ..frontend.errors import ModelError
    from ..frontend.reading.model_source import read_model
    from .custom_ops.library import build_library
    from .elf.linker import library_architecture
    from .native.tables import LEVELS

    name = library_architecture(architecture).name
    operators: dict[str, list[onnx_ir.Node]] = {}
    for graph in read_model(model).graphs():
        for node in graph:
            if node.domain == DOMAIN:
                operators.setdefault(node.op_type, []).append(node)
    variants: dict[str, dict[str, dict[str, Artefact]]] = {}
    reasons: list[str] = []
    for op_type, nodes in operators.items():
        try:
            variants[op_type] = _code_by_digest(nodes, name)
        except (ModelError, ValueError) as error:
            # an operator that the library does not know runs as its function
            reasons.append(f"{op_type} runs as its function, without native code: {one_line(error)}")
    if operators and not variants:
        raise ValueError("; ".join(reasons))
    for line in reasons:
        LOG.warning("%s", line)
    image = build_library({name: list(digests.items()) for name, digests in variants.items()}, path.name, name)
    with replacing(path) as file:
        file.write(image)
    made = {level for digests in variants.values() for artefacts in digests.values() for level in artefacts}
    return tuple(level for level in LEVELS[name] if level in made)


def _code_by_digest(nodes: "Sequence[onnx_ir.Node]", architecture: str) -> dict[str, dict[str, Artefact]]:
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
            found[digest] = code_of_levels(partial(compile_network, op_type, attributes, constants), architecture)
    for artefact in (one for levels in found.values() for one in levels.values()):
        network_table(artefact.program, symbols_of(artefact.program, ""), IN_ONNXRUNTIME)
    return found
