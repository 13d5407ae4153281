"""The library of the execution provider: what onnxruntime calls during a run is native, the rest is passed to Python.

The functions of `HOST_FUNCTIONS` go through a word of `EP_HOST_VARIABLE` each, and answer null where it is empty: a
session, or onnxruntime itself, may be torn down after the interpreter is gone.
"""

from typing import Final

from llvmlite import ir

from ...lowering.architectures import Architecture
from ...lowering.calls.words import Words, rarely
from ...lowering.llvm.values import I32, Number
from .api import API_VERSION
from .code import Api, OrtCode, emit_call_behind, emit_messages
from .compute import emit_compute
from .cpu import emit_cpu
from .ep_api import ComputeInfo

EP_NAME: Final = "RedpebbleExecutionProvider"
EP_VENDOR: Final = "redpebble"
EP_HOST_VARIABLE: Final = "redpebble_provider_host"
"""Exported: a word for each of `HOST_FUNCTIONS`, the function of this process or null, and one as `HostWord.Behind`."""

CREATE: Final = "CreateEpFactories"
RELEASE: Final = "ReleaseEpFactory"

HOST_FUNCTIONS: Final[dict[str, int]] = {
    RELEASE: 1,
    "ep_devices": 6,
    "ep_create": 7,
    "ep_release": 2,
    "ep_capability": 3,
    "ep_compile": 6,
    "ep_release_infos": 3,
    "ep_compatibility": 2,
    "ep_validate": 5,
    CREATE: 6,
}
"""Function -> the number of its arguments, all of them words."""

NATIVE_FUNCTIONS: Final = (
    "ep_name",
    "ep_vendor",
    "ep_version",
    "ep_zero",
    "ep_nothing_2",
    "ep_nothing_4",
    "ep_state",
    "ep_compute",
)
EP_EXPORTS: Final = (EP_HOST_VARIABLE, *HOST_FUNCTIONS, *NATIVE_FUNCTIONS)


def provider_module(version: str, architecture: Architecture) -> str:
    """Return the LLVM IR of the library for an architecture; `version` is that of redpebble."""
    code = OrtCode(ir.Module("redpebble-provider"), architecture=architecture)
    for emit in (emit_messages, emit_cpu, emit_compute):
        emit(code)
    _emit_texts(code, version)
    _emit_nothing(code)
    _emit_state(code)
    _emit_host_functions(code)
    return str(code.module)


def _emit_texts(code: OrtCode, version: str) -> None:
    for name, words in (("ep_name", EP_NAME), ("ep_vendor", EP_VENDOR), ("ep_version", version)):

        @code.function(name, exported=True)
        def text(_: Words, words: str = words) -> Words:
            return code.text(words)


def _emit_nothing(code: OrtCode) -> None:
    """Emit `ep_zero`, the answer to yes or no and how many, and functions whose last argument gets a null."""

    @code.function(exported=True)
    def ep_zero(_ep: Words, _: Words) -> Number:
        return code.constant(0)

    for count in (2, 4):

        @code.function(f"ep_nothing_{count}", exported=True, pointers=count)
        def nothing(*arguments: Words) -> Words:
            arguments[-1][0] = code.null
            return code.null


def _emit_state(code: OrtCode) -> None:
    """Emit `ep_state (info, context, state) -> status` and `ep_compute (info, state, context) -> status`."""

    @code.function(exported=True)
    def ep_state(info: Words, _: Words, result: Words) -> Words:
        result[0] = info.to(ComputeInfo.Kernel)
        return code.null

    @code.function(exported=True)
    def ep_compute(_: Words, kernel: Words, context: Words) -> Words:
        return code.address("compute", kernel, context)


def _emit_host_functions(code: OrtCode) -> None:
    code.variable(EP_HOST_VARIABLE, len(HOST_FUNCTIONS) + 1)
    emit_call_behind(code, EP_HOST_VARIABLE, len(HOST_FUNCTIONS))
    for index, (name, count) in enumerate(HOST_FUNCTIONS.items()):

        @code.function(name, exported=True, pointers=count)
        def host_function(*arguments: Words, word: int = index, needed: bool = name == CREATE) -> Words:
            function = code.table(EP_HOST_VARIABLE).to(word)
            with rarely(function.is_null()):
                if needed:
                    api = arguments[1].to().address_of(ir.Constant(I32, API_VERSION)).cast(Api)
                    code.leave(code.status(api, "the provider needs `redpebble.register()` in this process"))
                else:
                    code.leave(code.null)
            result = function.address_of(*arguments)
            code.call("call_behind")
            return result
