"""The way in which onnxruntime's threads wait for each other amid a step."""

from typing import Final

from ...lowering.calls.steps import Waiting
from ...lowering.calls.words import NULL, WordCode
from .code import OrtCode

SPINS: Final = 256
"""Looks at a flag before a thread lets others run, who may be those it waits for."""

WAITING: Final = Waiting(
    SPINS,
    lambda code: _ort(code).system_call("sched_yield"),
    lambda code, time: _ort(code).system_call("nanosleep", time.value, NULL),
)


def _ort(code: WordCode) -> OrtCode:
    assert isinstance(code, OrtCode)
    return code
