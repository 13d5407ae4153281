"""This process as the execution provider: it is asked which nodes it takes, and compiles them."""

import atexit
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import onnx_ir

from redpebble.deploy.ep_graph import Boundary, GraphReader, OrtGraph, in_order, part_of
from redpebble.deploy.ep_memory import OrtMemory, put_word, word_at
from redpebble.deploy.ort_host import LoadedNetwork, load_network
from redpebble.deploy.ort_node import OrtFunctions
from redpebble.lowering.ep_api import (
    COMPUTE_INFO_WORDS,
    EP_VERSION,
    EP_WORDS,
    FACTORY_WORDS,
    ComputeInfo,
    Ep,
    EpSlot,
    Factory,
    GraphSlot,
)
from redpebble.lowering.ep_library import CREATE, EP_HOST_VARIABLE, HOST_FUNCTIONS, RELEASE
from redpebble.lowering.ort_api import ARENA_ALLOCATOR, DEFAULT_MEMORY, SHAPE_VERSION, Slot
from redpebble.lowering.ort_compute import KERNEL_BYTES, Kernel
from redpebble.runtime.artefact import Artefact
from redpebble.runtime.memory import address_of

CPU_DEVICE: Final = 0
"""`OrtHardwareDeviceType_CPU`."""

FAILED: Final = 1
"""`ORT_FAIL`."""

DROP_CONSTANTS: Final = EP_VERSION | 1 << 32
"""`OrtNodeFusionOptions`: the version, and that the constants are not needed during a run."""


class Compiler(Protocol):
    """What the provider asks: where sparse networks lie in a model, and native code for one."""

    def networks(self, model: onnx_ir.Model) -> list[Boundary]:
        """Return inputs and outputs of the networks that are predicted to gain."""
        ...

    def compile(self, model: onnx_ir.Model) -> Artefact | None:
        """Return native code for a network as a model of its own, None where it is not covered."""
        ...

    @property
    def cpus(self) -> int:
        """How many threads onnxruntime may give to a node."""
        ...


@dataclass(frozen=True)
class Runtime:
    """The onnxruntime that has asked: its functions, and the one that only newer versions have, or 0."""

    functions: OrtFunctions
    ep_functions: OrtFunctions
    memory: OrtMemory
    shape_of: int


def runtime_of(base: int, minor: int) -> Runtime:
    """Return the functions behind an `OrtApiBase` of onnxruntime 1.`minor`."""
    get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(word_at(base))
    functions = OrtFunctions(get_api(EP_VERSION) or 0)
    get_ep_api = ctypes.CFUNCTYPE(ctypes.c_void_p)(word_at(functions.address, GraphSlot.GetEpApi))
    slot = Slot.GetTensorElementTypeAndShapeDataReference
    shape_of = word_at(get_api(SHAPE_VERSION) or 0, slot) if minor >= SHAPE_VERSION else 0
    return Runtime(functions, OrtFunctions(get_ep_api() or 0), OrtMemory(functions), shape_of)


class ProviderHost:
    """The functions that the provider's library calls."""

    def __init__(self, library: Path) -> None:
        """Open the library, which onnxruntime opens by the same path, and put our functions in."""
        self._library = ctypes.CDLL(str(library))
        self._compiler: Compiler | None = None
        self._minor = 0
        self._runtime: Runtime | None = None
        self._artefacts: dict[int, dict[Boundary, Artefact]] = {}
        self._networks: dict[int, LoadedNetwork] = {}
        own: dict[str, Callable[..., int | None]] = {
            RELEASE: self._release_factory,
            "ep_devices": self._devices,
            "ep_create": self._create,
            "ep_release": self._release,
            "ep_capability": self._capability,
            "ep_compile": self._compile,
            "ep_release_infos": self._release_infos,
            CREATE: self._create_factories,
        }
        self._functions = [_guarded(self, own[name], count) for name, count in HOST_FUNCTIONS.items()]
        self._slots = (ctypes.c_void_p * len(HOST_FUNCTIONS)).in_dll(self._library, EP_HOST_VARIABLE)
        atexit.register(self.close)

    @property
    def network_count(self) -> int:
        """How many networks are held by sessions."""
        return len(self._networks)

    @property
    def ep_count(self) -> int:
        """How many sessions have the provider."""
        return len(self._artefacts)

    def open(self, compiler: Compiler, minor: int) -> None:
        """Put our functions in: `compiler` serves the sessions of onnxruntime 1.`minor` in this process."""
        self._compiler, self._minor = compiler, minor
        for index, function in enumerate(self._functions):
            self._slots[index] = ctypes.cast(function, ctypes.c_void_p).value

    def close(self) -> None:
        """Take our functions out: sessions that outlive the interpreter must not call into it."""
        for index in range(len(HOST_FUNCTIONS)):
            self._slots[index] = None

    def status(self, error: BaseException) -> int:
        """Return a status of onnxruntime that says what went wrong."""
        text = " ".join(str(error).split()) or type(error).__name__
        create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
        address = word_at(self._known.functions.address, Slot.CreateStatus)
        return create(address)(FAILED, f"redpebble: {text}".encode()) or 0

    @property
    def _known(self) -> Runtime:
        if self._runtime is None:
            raise ValueError("the provider was not created by onnxruntime")
        return self._runtime

    @property
    def _asked(self) -> Compiler:
        if self._compiler is None:
            raise ValueError("no compiler is set")
        return self._compiler

    def _native(self, name: str) -> int:
        return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0

    def _create_factories(self, name: int, base: int, logger: int, factories: int, most: int, count: int) -> None:
        del name, logger, most
        self._runtime = runtime_of(base, self._minor)
        functions = {
            Factory.GetName: "ep_name",
            Factory.GetVendor: "ep_vendor",
            Factory.GetSupportedDevices: "ep_devices",
            Factory.CreateEp: "ep_create",
            Factory.ReleaseEp: "ep_release",
            Factory.GetVendorId: "ep_zero",
            Factory.GetVersion: "ep_version",
            Factory.CreateAllocator: "ep_nothing_4",
            Factory.ReleaseAllocator: "ep_zero",
            Factory.CreateDataTransfer: "ep_nothing_2",
            Factory.IsStreamAware: "ep_zero",
            Factory.CreateSyncStreamForDevice: "ep_nothing_4",
        }
        put_word(factories, self._struct(FACTORY_WORDS, functions))
        put_word(count, 1)

    def _struct(self, size: int, functions: dict[Any, str], kernel: int = 0) -> int:
        words = {int(word): self._native(name) for word, name in functions.items()}
        words[0] = EP_VERSION
        if kernel:
            words[ComputeInfo.Kernel] = kernel
        return self._known.memory.words(size, words)

    def _release_factory(self, factory: int) -> None:
        self._known.memory.free(factory)

    def _devices(self, factory: int, devices: int, count: int, found: int, most: int, found_count: int) -> None:
        functions, taken = self._known.functions, 0
        kind_of = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        kind = kind_of(word_at(functions.address, GraphSlot.HardwareDevice_Type))
        for device in [word_at(devices, index) for index in range(count or 0)]:
            if kind(device) == CPU_DEVICE and taken < most:
                made = self._known.ep_functions.word(EpSlot.CreateEpDevice, factory, device, None, None)
                put_word(found, made, taken)
                taken += 1
        put_word(found_count, taken)

    def _create(self, *arguments: int) -> None:
        functions = {
            Ep.GetName: "ep_name",
            Ep.GetCapability: "ep_capability",
            Ep.Compile: "ep_compile",
            Ep.ReleaseNodeComputeInfos: "ep_release_infos",
        }
        ep = self._struct(EP_WORDS, functions)
        self._artefacts[ep] = {}
        put_word(arguments[-1], ep)

    def _release(self, factory: int, ep: int) -> None:
        del factory
        self._artefacts.pop(ep, None)
        self._known.memory.free(ep)

    def _capability(self, ep: int, graph: int, support: int) -> None:
        reader = GraphReader(self._known.functions)
        if reader.is_nested(graph):
            return  # the bodies of If and Loop stay with onnxruntime
        seen = reader.graph(graph)
        taken: set[int] = set()
        for inputs, outputs in self._asked.networks(seen.model()):
            nodes = part_of(seen, inputs, outputs)
            if nodes is None or taken.intersection(node.handle for node in nodes):
                continue
            boundary = in_order(nodes, inputs, outputs)
            artefact = self._asked.compile(seen.part(nodes, *boundary))
            if artefact is None:
                continue
            self._artefacts[ep][boundary] = artefact
            taken.update(node.handle for node in nodes)
            handles = (ctypes.c_uint64 * len(nodes))(*(node.handle for node in nodes))
            options = ctypes.c_uint64(DROP_CONSTANTS)
            places = (ctypes.addressof(handles), len(nodes), ctypes.addressof(options))
            self._known.ep_functions.call(EpSlot.EpGraphSupportInfo_AddNodesToFuse, support, *places)

    def _compile(self, ep: int, graphs: int, fused: int, count: int, infos: int, contexts: int) -> None:
        del contexts
        networks: list[LoadedNetwork] = []
        for index in range(count or 0):
            reader = GraphReader(self._known.functions)
            seen, node = reader.graph(word_at(graphs, index)), word_at(fused, index)
            networks.append(load_network(self._artefact(ep, seen, (reader.inputs(node), reader.outputs(node)))))
        # all or none: onnxruntime gives nothing back where this fails
        for index, network in enumerate(networks):
            put_word(infos, self._compute_info(network), index)

    def _artefact(self, ep: int, graph: OrtGraph, boundary: Boundary) -> Artefact:
        """Return the code of a fused node, whose inputs and outputs may stand in an order of onnxruntime's own."""
        inputs = tuple(name for name in boundary[0] if name not in graph.constants)
        artefact = self._artefacts[ep].get((inputs, boundary[1]))
        if artefact is None:
            artefact = self._asked.compile(graph.part(graph.nodes, inputs, boundary[1]))
        if artefact is None:
            raise ValueError(f"nodes that give {', '.join(boundary[1])} are not covered")
        return artefact

    def _compute_info(self, network: LoadedNetwork) -> int:
        known = self._known
        kernel = known.memory.words(
            KERNEL_BYTES // 8,
            {
                Kernel.Api: known.functions.address,
                Kernel.Header: address_of(network.table),
                Kernel.MemoryInfo: known.functions.word(Slot.CreateCpuMemoryInfo, ARENA_ALLOCATOR, DEFAULT_MEMORY),
                Kernel.Cpus: self._asked.cpus,
                Kernel.ShapeOf: known.shape_of,
            },
        )
        self._networks[kernel] = network
        functions = {
            ComputeInfo.CreateState: "ep_state",
            ComputeInfo.Compute: "ep_compute",
            ComputeInfo.ReleaseState: "ep_zero",
        }
        return self._struct(COMPUTE_INFO_WORDS, functions, kernel)

    def _release_infos(self, ep: int, infos: int, count: int) -> None:
        del ep
        for info in [word_at(infos, index) for index in range(count or 0)]:
            if not info:
                continue
            kernel = word_at(info, ComputeInfo.Kernel)
            self._networks.pop(kernel, None)
            self._known.functions.release(Slot.ReleaseMemoryInfo, word_at(kernel, Kernel.MemoryInfo))
            self._known.memory.free(kernel)
            self._known.memory.free(info)


def _guarded(owner: ProviderHost, function: Callable[..., int | None], count: int) -> Any:  # noqa: ANN401 - a ctypes callback
    """Return a callback whose exceptions become a status: none may pass into native code, whatever it is."""

    def call(*arguments: int) -> int:
        try:
            return function(*arguments) or 0
        except Exception as error:
            return owner.status(error)

    return ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * count)(call)


@cache
def provider_host(library: Path) -> ProviderHost:
    """Return the host of a library; there is one, as there is one copy of the library in a process."""
    return ProviderHost(library)
