"""Native code for nodes that stand for sparse networks, from the user's cache where it was made before."""

import hashlib
from functools import cache
from typing import Final

import onnxruntime

from ..export.sparse_networks.node_format import FORMAT, Attributes, Constants, node_identity
from ..foundation.log import LOG
from ..foundation.threads import usable_threads
from ..lowering.calls.network_table import IN_ONNXRUNTIME
from ..lowering.cpu_target import CpuTarget
from ..runtime.jit import host_target
from ..runtime.loaded_network import LoadedNetwork, load_network
from ..runtime.store.artefact import Artefact
from ..runtime.store.cache import cache_key, default_folder, load, store
from .counters import count
from .custom_ops.network_session import NetworkSession
from .custom_ops.node import one_line

OPTIONS: Final = "sparse network"
"""The salt that sets the code of a node apart in the cache from that of a model."""


def checked_identity(op_type: str, attributes: Attributes, constants: Constants) -> str:
    """Return the identity of a node (`node_identity`) that states what it holds.

    Raises:
        ValueError: the node is not one that this version wrote, or was changed since.
    """
    version = attributes.get("format")
    if version != FORMAT:
        raise ValueError(f"{op_type}: expected a network of format {FORMAT}, got {version}")
    digest = hashlib.sha256(str(attributes.get("network", "")).encode())
    for index, array in enumerate(constants):
        if array is None:
            raise ValueError(f"{op_type}: expected an initializer for constant {index}, got a computed value")
        digest.update(array.tobytes())
    if digest.hexdigest() != attributes.get("digest"):
        raise ValueError(f"{op_type}: network and constants do not have the digest that the node states")
    return node_identity(op_type, attributes, constants)


def compile_network(
    op_type: str,
    attributes: Attributes,
    constants: Constants,
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
    identity = checked_identity(op_type, attributes, constants)
    cpu = host_target() if target is None else target
    return _compiled(identity, op_type, attributes, constants, cpu, threads or usable_threads())


def network_in_session(
    op_type: str,
    attributes: Attributes,
    constants: Constants,
    *,
    threads: int | None = None,
    given_up: list[str] | None = None,
) -> LoadedNetwork | NetworkSession:
    """Return native code for a node, loaded; where there can be none, a session in which onnxruntime runs the network.

    A line that says why is a warning, or added to `given_up` where the caller has a use for it.

    Raises:
        ValueError: the node is not one that this version wrote, or was changed since.
    """
    identity, number = checked_identity(op_type, attributes, constants), threads or usable_threads()
    try:
        artefact = _compiled(identity, op_type, attributes, constants, host_target(), number)
        return load_network(*artefact, IN_ONNXRUNTIME)
    except Exception as error:  # whatever it is, the network says in standard operators what it computes
        line = f"{op_type} runs as its function, without native code: {one_line(error)}"
        count("networks_as_functions")
        if given_up is None:
            LOG.warning("%s", line)
        else:
            given_up.append(line)
    return _run_by_onnxruntime(op_type, attributes, constants, number)


def _run_by_onnxruntime(op_type: str, attributes: Attributes, constants: Constants, threads: int) -> NetworkSession:
    from ..export.sparse_networks.node_content import network_model
    from ..frontend.reading.model_source import read_runnable_model

    model = network_model(op_type, attributes, constants)
    read_runnable_model(model, any_version=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    content = model.SerializeToString()
    return NetworkSession(onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]))


def code_key(identity: str, cpu: CpuTarget, threads: int) -> str:
    """Return the name in the cache of code for a node, cut for so many threads."""
    return cache_key(bytes.fromhex(identity), cpu, f"{OPTIONS} threads={threads}")


@cache
def ready_code() -> dict[str, Artefact]:
    """Return the code, by its name in the cache, of sessions that are being made: no cache may hold it."""
    return {}


def _compiled(
    identity: str, op_type: str, attributes: Attributes, constants: Constants, cpu: CpuTarget, threads: int
) -> Artefact:
    key = code_key(identity, cpu, threads)
    ready = ready_code().get(key)
    artefact = ready or load(default_folder(), key)
    if artefact is not None and ready is None:
        count("networks_from_cache")
    if artefact is None:
        from ..driver.compiler import native_code
        from ..export.sparse_networks.node_content import network_model
        from ..options import Options

        model = network_model(op_type, attributes, constants)
        artefact = native_code(model, Options(threads=threads, is_node=True), target=cpu, cache=False)
        count("networks_compiled")
        store(default_folder(), key, artefact)
    return artefact
