"""The execution provider in this process: it chooses nodes of a graph and compiles them."""

import atexit
import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from ...lowering.calls.network_table import IN_ONNXRUNTIME
from ...runtime.loaded_network import LoadedNetwork, load_network
from ...runtime.memory import address_of
from ..custom_ops.node import INTERRUPT, OrtFunctions, one_line
from ..native.api import ARENA_ALLOCATOR, DEFAULT_MEMORY, SHAPE_VERSION, Slot
from ..native.compute import KERNEL_BYTES, Kernel
from ..native.ep_api import (
    COMPUTE_INFO_WORDS,
    EP_VERSION,
    EP_WORDS,
    FACTORY_WORDS,
    WARNING,
    ComputeInfo,
    Ep,
    EpSlot,
    Factory,
    GraphSlot,
)
from ..native.ep_library import CREATE, EP_HOST_VARIABLE, HOST_FUNCTIONS, RELEASE
from .context_nodes import compatibility_of, compatibility_text, is_context
from .graph import GraphNode, GraphReader
from .networks import Compiler, EpSession, FusedNode, code_of, context_of, networks_of
from .settings import read_settings

# The onnxruntime that has asked: its tables of functions, and its memory.
#
# Words that it reads and keeps lie in that memory, since they may have to outlive this interpreter.


@dataclass(frozen=True)
class OrtMemory:
    """Memory of onnxruntime's default allocator."""

    functions: OrtFunctions

    def words(self, count: int, values: Mapping[int, int]) -> int:
        """Return the address of so many words: `values` by their index, all others 0."""
        allocator = self.functions.word(Slot.GetAllocatorWithDefaultOptions)
        address = self.functions.word(Slot.AllocatorAlloc, allocator, 8 * count)
        memory = (ctypes.c_uint64 * count).from_address(address)
        for index in range(count):
            memory[index] = values.get(index, 0)
        return address

    def free(self, address: int) -> None:
        """Give words back."""
        allocator = self.functions.word(Slot.GetAllocatorWithDefaultOptions)
        self.functions.call(Slot.AllocatorFree, allocator, address)


def word_at(address: int, index: int = 0) -> int:
    """Return a word."""
    return ctypes.c_uint64.from_address(address + 8 * index).value


def put_word(address: int, value: int, index: int = 0) -> None:
    """Write a word."""
    ctypes.c_uint64.from_address(address + 8 * index).value = value


def warn(functions: OrtFunctions, logger: int, line: str) -> None:
    """Give a line to a logger of onnxruntime as a warning, which it shows unless a session asks for less."""
    text, location = f"redpebble: {line}".encode(), (__file__.encode(), 0, b"redpebble")
    functions.call(GraphSlot.Logger_LogMessage, logger, WARNING, text, *location)


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
    return Runtime(functions, OrtFunctions(get_ep_api() or 0, functions.address), OrtMemory(functions), shape_of)


CPU_DEVICE: Final = 0
"""`OrtHardwareDeviceType_CPU`."""

DROP_CONSTANTS: Final = EP_VERSION | 1 << 32
"""`OrtNodeFusionOptions`: the version, and that the constants are not needed during a run."""


class ProviderHost:
    """The functions that the provider's library calls."""

    def __init__(self, library: Path) -> None:
        """Open the library, which onnxruntime opens by the same path, and put our functions in."""
        self._library = ctypes.CDLL(str(library))
        self.compiler: Compiler | None = None
        """The compiler that serves the sessions, if any."""
        self._minor = 0
        self._runtime: Runtime | None = None
        self._sessions: dict[int, EpSession] = {}
        self._compatibility = ctypes.create_string_buffer(compatibility_text().encode())
        self._networks: dict[int, LoadedNetwork] = {}
        own: dict[str, Callable[..., int | None]] = {
            RELEASE: self._release_factory,
            "ep_devices": self._devices,
            "ep_create": self._create,
            "ep_release": self._release,
            "ep_capability": self._capability,
            "ep_compile": self._compile,
            "ep_release_infos": self._release_infos,
            "ep_compatibility": self._compatibility_text,
            "ep_validate": self._validate,
            CREATE: self._create_factories,
        }
        self._functions = [_guarded(self, own[name], count) for name, count in HOST_FUNCTIONS.items()]
        self._slots = (ctypes.c_void_p * (len(HOST_FUNCTIONS) + 1)).in_dll(self._library, EP_HOST_VARIABLE)
        atexit.register(self.close)

    @property
    def network_count(self) -> int:
        return len(self._networks)

    @property
    def ep_count(self) -> int:
        return len(self._sessions)

    def open(self, compiler: Compiler, minor: int) -> None:
        """Put our functions in: `compiler` serves the sessions of onnxruntime 1.`minor` in this process."""
        self.compiler, self._minor = compiler, minor
        for index, function in enumerate(self._functions):
            self._slots[index] = ctypes.cast(function, ctypes.c_void_p).value

    def close(self) -> None:
        """Take our functions out: sessions that outlive the interpreter must not call into it."""
        for index in range(len(HOST_FUNCTIONS)):
            self._slots[index] = None

    def status(self, error: BaseException) -> int:
        """Return a status of onnxruntime that says what went wrong."""
        if isinstance(error, KeyboardInterrupt):
            self._slots[len(HOST_FUNCTIONS)] = INTERRUPT
        return self._known.functions.status(f"redpebble: {one_line(error)}")

    @property
    def _known(self) -> Runtime:
        if self._runtime is None:
            raise ValueError("the provider was not created by onnxruntime")
        return self._runtime

    @property
    def _asked(self) -> Compiler:
        if self.compiler is None:
            raise ValueError("no compiler is set")
        return self.compiler

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
            Factory.ValidateCompiledModelCompatibilityInfo: "ep_validate",
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
            Ep.GetCompiledModelCompatibilityInfo: "ep_compatibility",
        }
        *_, options, logger, result = arguments
        settings = read_settings(self._known.functions, options)
        ep = self._struct(EP_WORDS, functions)
        self._sessions[ep] = EpSession(settings, logger)
        put_word(result, ep)

    def _release(self, factory: int, ep: int) -> None:
        del factory
        self._sessions.pop(ep, None)
        self._known.memory.free(ep)

    def _compatibility_text(self, ep: int, graph: int) -> int:
        """Return the compatibility text for a model that holds our code."""
        del ep, graph
        return ctypes.addressof(self._compatibility)

    def _validate(self, factory: int, devices: int, count: int, text: int, result: int) -> None:
        del factory, devices, count
        answer = compatibility_of(ctypes.string_at(text).decode(errors="replace"))
        ctypes.c_int.from_address(result).value = int(answer)

    def _capability(self, ep: int, graph: int, support: int) -> None:
        reader, session = GraphReader(self._known.functions), self._sessions[ep]
        if session.settings.writes_context and reader.is_nested(graph):
            return  # code is kept beside nodes of the main graph alone
        # graphs inside of others come first, and each is compiled before the next one is asked for
        seen = reader.graph(graph)
        for node in seen.nodes:
            if is_context(node):
                self._take(support, [node])
        networks = networks_of(self._asked, seen, anew=session.settings.writes_context)
        for network in networks.taken:
            session.networks[frozenset(network.planned.boundary[1])] = network
            self._take(support, network.nodes)
        for line in networks.given_up:
            warn(self._known.functions, session.logger, line)

    def _take(self, support: int, nodes: Sequence[GraphNode]) -> None:
        handles = (ctypes.c_uint64 * len(nodes))(*(node.handle for node in nodes))
        options = ctypes.c_uint64(DROP_CONSTANTS)
        addresses = (ctypes.addressof(handles), len(nodes), ctypes.addressof(options))
        self._known.ep_functions.call(EpSlot.EpGraphSupportInfo_AddNodesToFuse, support, *addresses)

    def _compile(self, ep: int, graphs: int, fused: int, count: int, infos: int, contexts: int) -> None:
        session, functions = self._sessions[ep], self._known.functions
        jobs = [
            FusedNode(GraphReader(functions), word_at(graphs, index), word_at(fused, index))
            for index in range(count or 0)
        ]
        codes = code_of(self._asked, session, jobs)
        networks = [load_network(*code.artefact, IN_ONNXRUNTIME, code.numbers) for code in codes]
        written: list[int] = []
        if session.settings.writes_context:
            written = [context_of(session, job) for job in jobs]
        # all or none: onnxruntime gives nothing back where this fails
        for index, network in enumerate(networks):
            put_word(infos, self._compute_info(network), index)
        for index, node in enumerate(written):
            put_word(contexts, node, index)

    def _compute_info(self, network: LoadedNetwork) -> int:
        known = self._known
        kernel = known.memory.words(
            KERNEL_BYTES // 8,
            {
                Kernel.api: known.functions.address,
                Kernel.header: address_of(network.table),
                Kernel.memory_info: known.functions.word(Slot.CreateCpuMemoryInfo, ARENA_ALLOCATOR, DEFAULT_MEMORY),
                Kernel.threads: self._asked.cpus,
                Kernel.shape_of: known.shape_of,
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
            self._known.functions.release(Slot.ReleaseMemoryInfo, word_at(kernel, Kernel.memory_info))
            self._known.memory.free(kernel)
            self._known.memory.free(info)


def _guarded(owner: ProviderHost, function: Callable[..., int | None], count: int) -> Any:  # noqa: ANN401 - a ctypes callback
    """Return a callback whose exceptions become a status: none may pass into native code, whatever it is."""

    def call(*arguments: int) -> int:
        try:
            return function(*arguments) or 0
        except BaseException as error:
            return owner.status(error)

    return ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * count)(call)


@cache
def provider_host(library: Path) -> ProviderHost:
    """Return the host of a library; there is one, as there is one copy of the library in a process."""
    return ProviderHost(library)
