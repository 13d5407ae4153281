"""The compiler of the operator library, in this process: nodes are compiled when a session makes them."""

import atexit
import ctypes
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from redpebble.lowering.calls.network_table import IN_ONNXRUNTIME
from redpebble.ort.custom_ops.node import OrtFunctions, OrtNode
from redpebble.ort.native.code import MESSAGE_BYTES
from redpebble.ort.native.tables import HOST_VARIABLE
from redpebble.runtime.loaded_network import LoadedNetwork, load_network
from redpebble.runtime.memory import address_of
from redpebble.runtime.store.artefact import Artefact

Compiler = Callable[[str, Mapping[str, str | int], Sequence[NDArray[Any] | None]], Artefact]
"""(operator, attributes, constants) -> native code."""

INTEGERS: Final = ("activations", "format")
TEXTS: Final = ("network", "digest")


class Host:
    """The functions that a library calls to have a network made and dropped."""

    def __init__(self, library: Path) -> None:
        """Open the library, which onnxruntime opens by the same path, and put our functions in."""
        self._library = ctypes.CDLL(str(library))
        self._networks: dict[int, LoadedNetwork] = {}
        self._numbers = itertools.count(1)
        self._compiler: Compiler | None = None
        make = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)
        drop = ctypes.CFUNCTYPE(None, ctypes.c_int64)
        self._functions = (make(self._make), drop(self._drop))
        self._slots = (ctypes.c_void_p * len(self._functions)).in_dll(self._library, HOST_VARIABLE)
        self.open()
        atexit.register(self.close)

    @property
    def network_count(self) -> int:
        """Number of networks that nodes hold."""
        return len(self._networks)

    def set_compiler(self, compiler: Compiler) -> None:
        """Have new nodes compiled by `compiler`."""
        self._compiler = compiler

    def open(self) -> None:
        """Put our functions in."""
        for index, function in enumerate(self._functions):
            self._slots[index] = ctypes.cast(function, ctypes.c_void_p).value

    def close(self) -> None:
        """Take our functions out: sessions that outlive the interpreter must not call into it."""
        for index in range(len(self._functions)):
            self._slots[index] = None

    def _make(self, name: int, api: int, info: int, header: int, message: int) -> int:
        """Make the network of a node; return its number, or 0 with a message."""
        operator = ctypes.string_at(name).decode()
        try:
            artefact = self._compiled(operator, OrtNode(OrtFunctions(api), info))
            network = load_network(*artefact, IN_ONNXRUNTIME)
        except Exception as error:  # nothing may pass into native code; whatever it is, the session says it
            text = " ".join(str(error).split()) or type(error).__name__
            text = text.removeprefix(f"{operator}: ")
            content = text.encode()[: MESSAGE_BYTES - 1] + b"\0"
            ctypes.memmove(message, content, len(content))
            return 0
        number = next(self._numbers)
        self._networks[number] = network
        ctypes.c_uint64.from_address(header).value = address_of(network.table)
        return number

    def _compiled(self, operator: str, node: OrtNode) -> Artefact:
        if self._compiler is None:
            raise ValueError("no compiler is set")
        attributes: dict[str, str | int] = {name: node.integer(name) for name in INTEGERS}
        attributes |= {name: node.text(name) for name in TEXTS}
        return self._compiler(operator, attributes, node.constants(int(attributes["activations"])))

    def _drop(self, number: int) -> None:
        self._networks.pop(number, None)


@cache
def host(library: Path) -> Host:
    """Return the host of a library; there is one, as there is one copy of the library in a process."""
    return Host(library)
