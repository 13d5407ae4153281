"""The library of the execution provider: what onnxruntime calls during a run is native, the rest is passed to Python.

The functions of `HOST_FUNCTIONS` go through a word of `EP_HOST_VARIABLE` each, and answer null where it is empty: a
session, or onnxruntime itself, may be torn down after the interpreter is gone.
"""

from typing import Final

from llvmlite import ir

from ...lowering.calls.words import NULL
from ...lowering.llvm.builder import I32, I64, POINTER, i64
from .api import API_VERSION
from .code import OrtCode, emit_call_behind, emit_messages
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


def provider_module(version: str) -> str:
    """Return the LLVM IR of the library for x86-64; `version` is that of redpebble."""
    code = OrtCode(ir.Module("redpebble-provider"))
    for emit in (emit_messages, emit_cpu, emit_compute):
        emit(code)
    _emit_texts(code, version)
    _emit_nothing(code)
    _emit_state(code)
    _emit_host_functions(code)
    return str(code.module)


def _emit_texts(code: OrtCode, version: str) -> None:
    for name, text in (("ep_name", EP_NAME), ("ep_vendor", EP_VENDOR), ("ep_version", version)):
        code.body(name, POINTER, [POINTER], exported=True).builder.ret(code.text(text))


def _emit_nothing(code: OrtCode) -> None:
    """Emit `ep_zero`, the answer to yes or no and how many, and functions whose last argument gets a null."""
    code.body("ep_zero", I64, [POINTER, POINTER], exported=True).builder.ret(i64(0))
    for count in (2, 4):
        body = code.body(f"ep_nothing_{count}", POINTER, [POINTER] * count, exported=True)
        body.put(body.args[-1], 0, NULL)
        body.builder.ret(NULL)


def _emit_state(code: OrtCode) -> None:
    """Emit `ep_state (info, context, state) -> status` and `ep_compute (info, state, context) -> status`."""
    body = code.body("ep_state", POINTER, [POINTER] * 3, exported=True)
    info, _, result = body.args
    body.put(result, 0, body.pointer(info, ComputeInfo.Kernel))
    body.builder.ret(NULL)
    body = code.body("ep_compute", POINTER, [POINTER] * 3, exported=True)
    _, kernel, context = body.args
    body.builder.ret(body.call("compute", kernel, context))


def _emit_host_functions(code: OrtCode) -> None:
    host = code.variable(EP_HOST_VARIABLE, len(HOST_FUNCTIONS) + 1)
    emit_call_behind(code, EP_HOST_VARIABLE, len(HOST_FUNCTIONS))
    for index, (name, count) in enumerate(HOST_FUNCTIONS.items()):
        body = code.body(name, POINTER, [POINTER] * count, exported=True)
        function = body.pointer(host, index)
        with body.when(body.is_null(function)):
            if name == CREATE:
                api = body.call_at(body.pointer(body.args[1]), POINTER, [ir.Constant(I32, API_VERSION)])
                body.builder.ret(body.status(api, "the provider needs `redpebble.register()` in this process"))
            else:
                body.builder.ret(NULL)
        result = body.call_at(function, POINTER, list(body.args))
        body.call("call_behind")
        body.builder.ret(result)
