"""The execution provider: models that nobody changed run their sparse networks with our code, inside onnxruntime.

```python
redpebble.register()
session = onnxruntime.InferenceSession("model.onnx", providers=["RedpebbleExecutionProvider"])
```
"""

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import onnx_ir
import onnxruntime
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue

from ...dialect.ops.sparse_network import SparseNetworkOp
from ...dialect.provenance import value_name
from ...driver.compiler import native_code, on_machine
from ...driver.extraction import extracted
from ...export.export_model import export_model
from ...export.sparse_networks.node_content import network_model, written
from ...export.sparse_networks.node_format import DOMAIN
from ...export.writing.compact_weights import SINCE
from ...foundation.atomic_files import replacing
from ...foundation.log import LOG
from ...foundation.one_at_a_time import one_at_a_time
from ...foundation.private_files import private_folder, read_private
from ...foundation.threads import usable_threads
from ...frontend.sparse_weights import graph_of, reason_of_density
from ...lowering.calls.network_table import IN_ONNXRUNTIME, network_table, symbols_of
from ...options import Options
from ...passes.simplify.drop_dead_units import DropDeadUnits
from ...passes.simplify.merge_equal_units import MergeEqualUnits
from ...runtime.jit import host_target
from ...runtime.store.artefact import Artefact
from ...runtime.store.cache import cache_key, default_folder, load, store
from ..counters import count
from ..elf.linker import Code, generic_object, library_architecture, link
from ..elf.loading import loaded
from ..model_looks import takes_dense_codes
from ..native.ep_api import EP_VERSION
from ..native.ep_library import EP_EXPORTS, EP_NAME, provider_module
from .host import ProviderHost, provider_host
from .networks import Found, NetworkModel, Plan, Planned

if TYPE_CHECKING:
    # what is older than 1.23 does not have it, and shall say so in one line
    from onnxruntime import OrtEpDevice

BY_NAME: Final = 26
"""onnxruntime 1.26 is the first that takes a registered provider by its name."""

REGISTRATION: Final = "redpebble"
"""The name by which onnxruntime knows the library."""

AS_IT_IS: Final = Options("optimize", skip_passes=(DropDeadUnits.name, MergeEqualUnits.name), may_add=False)
"""Options for a graph that is not written anew: its other nodes yield and read neurons that networks do without."""


class SparseNetworkCompiler:
    """Serves the provider with what the compiler says of layers that get so many rows at once, 0 for any number."""

    rows: int = 0

    def __init__(self, rows: int = 0) -> None:
        """Serve for `rows`."""
        self.rows = replace(AS_IT_IS, rows=rows).rows

    @property
    def cpus(self) -> int:
        """Number of threads that onnxruntime may give to a node."""
        return usable_threads()

    def networks(self, model: onnx_ir.Model) -> list[Found]:
        """Return the networks that are predicted to gain.

        Raises:
            ModelError: the model is not read.
        """
        if reason_of_density(graph_of(model), takes_dense_codes):
            return []
        imported = extracted(model, self._on_this_machine()).imported
        return found_networks(imported.module, imported.model)

    def compile(self, digest: bytes, model: NetworkModel) -> tuple[str, Artefact]:
        """Return native code for the network that `digest` tells from others, and `model` gives; and its key.

        Raises:
            ModelError: the network is not covered.
            ValueError: onnxruntime cannot have its sizes.
        """
        key, folder = self._key(hashlib.sha256(digest).digest(), "network"), default_folder()
        artefact = load(folder, key)
        if artefact is None:
            with one_at_a_time(folder / key):
                artefact = load(folder, key)  # another process may have made it meanwhile
                count("networks_compiled" if artefact is None else "networks_from_cache")
                if artefact is None:
                    artefact = native_code(model(), Options(threads=self.cpus, is_node=True), cache=False)
                    store(folder, key, artefact)
        else:
            count("networks_from_cache")
        # asked before onnxruntime gives its nodes away
        network_table(artefact.program, symbols_of(artefact.program, ""), IN_ONNXRUNTIME)
        return key, artefact

    def recall(self, digest: bytes) -> Plan | None:
        """Return the plan of a graph that was seen before, None where it was not, or some code is gone."""
        try:
            content = json.loads(read_private(self._plan(digest)))
            entries, given_up = content["networks"], [str(line) for line in content["given_up"]]
            boundaries = [(tuple(inputs), tuple(outputs)) for inputs, outputs, _ in entries]
            keys = [str(key) for *_, key in entries]
        except (OSError, ValueError, TypeError, KeyError):
            return None
        with ThreadPoolExecutor(self.cpus) as pool:
            # checksums of many megabytes, which threads can look at together
            artefacts = list(pool.map(partial(load, default_folder()), keys))
        found: list[Planned] = []
        for boundary, artefact, key in zip(boundaries, artefacts, keys, strict=True):
            if artefact is None or _sizes(artefact) != (len(boundary[0]), len(boundary[1])):
                return None
            found.append(Planned(boundary, artefact, key))
        count("networks_from_cache", len(found))
        return Plan(found, given_up)

    def remember(self, digest: bytes, plan: Plan) -> None:
        """Keep the plan of a graph; a folder that cannot be written to is no error."""
        networks = [(*one.boundary, one.key) for one in plan.networks]
        content = {"networks": networks, "given_up": [*plan.given_up]}
        path = self._plan(digest)
        try:
            private_folder(path.parent)
            with replacing(path, private=True) as file:
                file.write(json.dumps(content).encode())
        except OSError:
            return

    def _plan(self, digest: bytes) -> Path:
        known = f"plan {self._on_this_machine().machine} rows={self.rows}"
        return default_folder() / f"{self._key(digest, known)}.plan"

    def _key(self, digest: bytes, what: str) -> str:
        return cache_key(digest, host_target(), f"provider {what} threads={self.cpus}")

    def _on_this_machine(self) -> Options:
        return on_machine(replace(AS_IT_IS, rows=self.rows), None, None, tune=False)


def _sizes(artefact: Artefact) -> tuple[int, int]:
    return len(artefact.program.inputs), len(artefact.program.outputs)


def found_networks(module: ModuleOp, imported: onnx_ir.Model) -> list[Found]:
    """Return the sparse networks of a module that `imported` became."""
    model = imported.clone()
    # whatever the opset of the model: only the bodies of the networks are used of what is written here
    model.opset_imports[""] = max(model.opset_imports.get("", 0), SINCE)
    nodes = [node for node in export_model(module, model).graph if node.domain == DOMAIN]
    ops = [op for op in module.walk() if isinstance(op, SparseNetworkOp)]
    return [
        Found((tuple(map(_name, op.inputs)), tuple(map(_name, op.outputs))), partial(network_model, *written(node)))
        for op, node in zip(ops, nodes, strict=True)
    ]


def _name(value: SSAValue) -> str:
    """Return the name of a value in the model, or an unused name if passes made it."""
    if not isinstance(value, BlockArgument):
        return value_name(value)
    func = value.block.parent_op()
    if not isinstance(func, FuncOp) or func.arg_attrs is None:
        return ""
    name = func.arg_attrs.data[value.index].data.get("pebble.name")
    return name.data if isinstance(name, StringAttr) else ""


def minor_version(version: str) -> int:
    """Return the 23 of onnxruntime "1.23.0".

    Raises:
        ValueError: it is too old for a provider.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    major, minor = (int(found[1]), int(found[2])) if found else (0, 0)
    if (major, minor) < (1, EP_VERSION):
        raise ValueError(f"the execution provider needs onnxruntime 1.{EP_VERSION} or newer, this is {version}")
    return minor


def register(rows: int = 0) -> "list[OrtEpDevice]":
    """Make `RedpebbleExecutionProvider` known to onnxruntime, which runs sparse networks with our code.

    Sessions take it by its name, `providers=["RedpebbleExecutionProvider"]`, from onnxruntime 1.26 on; older ones take
    the devices that this returns, by `SessionOptions.add_provider_for_devices(devices, {})`.

    Nodes are compiled when a session is made, or come from the user's cache; all others stay with onnxruntime. Layers
    are taken that gain for `rows` at once, as in `optimize`, in all sessions made from now on.

    Raises:
        ValueError: onnxruntime is older than 1.23, this machine is no x86-64, or rows are negative.
    """
    minor = minor_version(onnxruntime.__version__)
    compiler, known, devices = SparseNetworkCompiler(rows), host().compiler, _devices()
    if not devices or (isinstance(known, SparseNetworkCompiler) and known.rows != rows):
        host().open(compiler, minor)
    if not devices:
        onnxruntime.register_execution_provider_library(REGISTRATION, str(provider_library()))
        devices = _devices()
        if minor < BY_NAME:
            LOG.warning(
                "onnxruntime %s takes %s by add_provider_for_devices; by name, 1.%d or newer does",
                onnxruntime.__version__,
                EP_NAME,
                BY_NAME,
            )
    return devices


def unregister() -> None:
    """Take the provider out of onnxruntime; sessions with it must be gone before.

    Raises:
        ValueError: there is a session with it.
    """
    if not _devices():
        return
    count = host().ep_count
    if count:
        raise ValueError(f"the execution provider: expected no session that uses it, got {count}")
    onnxruntime.unregister_execution_provider_library(REGISTRATION)


def host() -> ProviderHost:
    """Return the counts of the provider of this process."""
    return provider_host(provider_library())


def _devices() -> "list[OrtEpDevice]":
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == EP_NAME]


@cache
def provider_library() -> Path:
    """Return the library.

    Raises:
        ValueError: this machine is no x86-64.
    """
    architecture = library_architecture()
    object_file = generic_object(provider_module(version("redpebble"), architecture), architecture)
    image = link([Code(object_file)], EP_EXPORTS, "libredpebble_provider.so")
    return loaded(image, "libredpebble_provider.so")
