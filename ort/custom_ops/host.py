"""The compiler of the operator library, in this process: nodes are compiled when a session makes them."""

import atexit
import ctypes
import itertools
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from ...export.sparse_networks.node_format import Attributes, Constants
from ...lowering.calls.network_table import IN_ONNXRUNTIME
from ...runtime.loaded_network import LoadedNetwork, load_network
from ...runtime.memory import address_of
from ...runtime.store.artefact import Artefact
from ..native.code import MESSAGE_BYTES
from ..native.tables import HOST_VARIABLE, HostWord
from .network_session import NetworkSession
from .node import INTERRUPT, OrtFunctions, OrtNode, one_line

Compiler = Callable[[str, Attributes, Constants], Artefact | LoadedNetwork | NetworkSession]
"""(operator, attributes, constants) -> native code, or a session of what the node computes where there can be none."""

INTEGERS: Final = ("activations", "format")
TEXTS: Final = ("network", "digest")


class Host:
    """The functions that a library calls to have a network made and dropped."""

    def __init__(self, library: Path) -> None:
        """Open the library, which onnxruntime opens by the same path, and put our functions in."""
        self._library = ctypes.CDLL(str(library))
        self._networks: dict[int, LoadedNetwork | NetworkSession] = {}
        self._numbers = itertools.count(1)
        self._compiler: Compiler | None = None
        self._of_thread = threading.local()
        make = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)
        drop = ctypes.CFUNCTYPE(None, ctypes.c_int64)
        run = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 2)
        self._functions = {
            HostWord.Make: make(self._make),
            HostWord.Drop: drop(self._drop),
            HostWord.Run: run(self._run),
        }
        self._slots = (ctypes.c_void_p * len(HostWord)).in_dll(self._library, HOST_VARIABLE)
        self.open()
        atexit.register(self.close)

    @property
    def network_count(self) -> int:
        return len(self._networks)

    def set_compiler(self, compiler: Compiler) -> None:
        """Have new nodes compiled by `compiler`, those of sessions that other threads make by the one they have set."""
        self._compiler = self._of_thread.compiler = compiler

    def open(self) -> None:
        """Put our functions in."""
        for word, function in self._functions.items():
            self._slots[word] = ctypes.cast(function, ctypes.c_void_p).value

    def close(self) -> None:
        """Take our functions out: sessions that outlive the interpreter must not call into it."""
        for word in HostWord:
            self._slots[word] = None

    def _make(self, name: int, api: int, info: int, header: int, message: int) -> int:
        """Make the network of a node; return its number, negative where it is run from here, or 0 with a message."""
        operator = ctypes.string_at(name).decode()
        try:
            made = self._compiled(operator, OrtNode(OrtFunctions(api), info))
            network = load_network(*made, IN_ONNXRUNTIME) if isinstance(made, Artefact) else made
            number = next(self._numbers)
            self._networks[number] = network
        except BaseException as error:  # nothing may pass into native code; whatever it is, the session says it
            self._note(error)
            content = one_line(error).removeprefix(f"{operator}: ").encode()[: MESSAGE_BYTES - 1] + b"\0"
            ctypes.memmove(message, content, len(content))
            return 0
        ctypes.c_uint64.from_address(header).value = address_of(network.table)
        return -number if isinstance(network, NetworkSession) else number

    def _run(self, number: int, api: int, context: int) -> int:
        """Run a network that has no native code; return a status."""
        functions = OrtFunctions(api)
        try:
            network = self._networks[-number]
            if isinstance(network, NetworkSession):
                network.run(functions, context)
        except BaseException as error:  # as above
            self._note(error)
            return functions.status(one_line(error))
        return 0

    def _note(self, error: BaseException) -> None:
        """Let an interrupt be raised behind native code."""
        if isinstance(error, KeyboardInterrupt):
            self._slots[HostWord.Behind] = INTERRUPT

    def _compiled(self, operator: str, node: OrtNode) -> Artefact | LoadedNetwork | NetworkSession:
        compiler: Compiler | None = getattr(self._of_thread, "compiler", self._compiler)
        if compiler is None:
            raise ValueError("no compiler is set")
        attributes: dict[str, str | int] = {name: node.integer(name) for name in INTEGERS}
        attributes |= {name: node.text(name) for name in TEXTS}
        return compiler(operator, attributes, node.constants(int(attributes["activations"])))

    def _drop(self, number: int) -> None:
        self._networks.pop(abs(number), None)


@cache
def host(library: Path) -> Host:
    """Return the host of a library; there is one, as there is one copy of the library in a process."""
    return Host(library)
