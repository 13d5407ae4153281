"""Modules as ONNX, by `torch.export` and torch's exporter: the one that traces would write sizes of the example down.

Masks and parametrizations are products of constants in the model, which its reader multiplies; weights in a sparse
layout are dense, and operators that were registered are others, while the module is exported.
"""

import logging
import threading
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn

from ...frontend.errors import UnsupportedModelError, first_line
from ..layer_inputs import calling_layers
from ..operators import replaced_operators
from ..torch_zeros import dense_of, is_sparse

Shapes = Any
"""Free axes of arguments, as `torch.export.export` takes them: a mapping of names, or a tuple."""

EXPORTING: Final = threading.Lock()
"""Held by an export: torch keeps in one variable of the process whether there is one."""

MOST_BYTES: Final = 2**31 - 1
"""Bytes of a model in memory: a message of protobuf is not larger."""


def onnx_bytes(
    module: nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any], free: Shapes, name: str
) -> bytes:
    """Return the model of a module called `name`, whose inputs are the tensors among the arguments, in their order.

    Raises:
        UnsupportedModelError: torch cannot export the module, or its model has more than 2 GiB.
    """
    try:
        with EXPORTING, _silence(), calling_layers():
            program = torch.onnx.export(
                module, arguments, kwargs=dict(named), dynamic_shapes=free, dynamo=True, verbose=False
            )
    except ImportError as error:
        raise UnsupportedModelError(f"{name}: expected the package onnxscript for torch's exporter: {error}") from error
    except Exception as error:
        reason = first_line(error.__cause__ or error)
        raise UnsupportedModelError(f"{name}: expected a module that torch exports, got {reason}") from error
    assert program is not None
    size = sum(value.const_value.nbytes for value in program.model.graph.initializers.values() if value.const_value)
    if size > MOST_BYTES:
        raise UnsupportedModelError(f"{name}: expected a model of up to {MOST_BYTES} bytes, got {size}")
    return program.model_proto.SerializeToString()


@contextmanager
def evaluating(module: nn.Module) -> Generator[None]:
    """Let a module be in evaluation mode, without gradients, for as long as that lasts."""
    modes = [(one, one.training) for one in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for one, mode in modes:
            one.training = mode


@contextmanager
def exportable(module: nn.Module) -> Generator[None]:
    """Let a module have dense weights and operators that torch exports, for as long as that lasts."""
    operators = replaced_operators(module)
    for parent, name, _, other in operators:
        parent._modules[name] = other.eval()
    sparse = [
        (stored, name, value)
        for one in module.modules()
        for stored in (one._parameters, one._buffers)
        for name, value in stored.items()
        if value is not None and is_sparse(value)
    ]
    try:
        for stored, name, value in sparse:
            stored[name] = nn.Parameter(dense_of(value), requires_grad=False)
        yield
    finally:
        for stored, name, value in sparse:
            stored[name] = value
        for parent, name, child, _ in operators:
            parent._modules[name] = child


@contextmanager
def _silence() -> Generator[None]:
    """Keep the exporter's remarks, such as on packages that are not installed, from users."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir", "onnxscript")]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)
