"""One model with every covered activation in a row, each after a sparse layer of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from .graph_builder import GraphBuilder, Output
from .pruned_weights import random_bias, random_weight
from .recipe import require_at_least, require_density

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class _Step:
    """One activation being written: nodes are called /`name`/operator."""

    builder: GraphBuilder
    name: str

    def op(self, op_type: str, *inputs: ir.Value, **attributes: float | str) -> ir.Value:
        return self.builder.op(op_type, inputs, f"/{self.name}/{op_type}", attributes)

    def number(self, label: str, value: float) -> ir.Value:
        return self.builder.constant(f"{self.name}.{label}", np.array(value, dtype=np.float32))


_ONE_OP: Final[Mapping[str, tuple[str, Mapping[str, float | str]]]] = MappingProxyType(
    {
        "relu": ("Relu", {}),
        "leaky_relu": ("LeakyRelu", {"alpha": 0.1}),
        "sigmoid": ("Sigmoid", {}),
        "tanh": ("Tanh", {}),
        "erf": ("Erf", {}),
        "gelu": ("Gelu", {}),
        "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
        "hard_swish": ("HardSwish", {}),
        "hard_sigmoid": ("HardSigmoid", {"alpha": 0.25, "beta": 0.4}),
        "elu": ("Elu", {"alpha": 0.5}),
        "selu": ("Selu", {}),
        "celu": ("Celu", {"alpha": 0.5}),
        "softplus": ("Softplus", {}),
        "mish": ("Mish", {}),
        "softmax": ("Softmax", {"axis": -1}),
        "log_softmax": ("LogSoftmax", {"axis": -1}),
        "abs": ("Abs", {}),
        "neg": ("Neg", {}),
    }
)
"""Activation -> its operator and attributes."""


def _clip(step: _Step, x: ir.Value) -> ir.Value:
    return step.op("Clip", x, step.number("min", -0.5), step.number("max", 1.5))


def _prelu(step: _Step, x: ir.Value) -> ir.Value:
    return step.op("PRelu", x, step.number("slope", 0.2))


def _silu(step: _Step, x: ir.Value) -> ir.Value:
    return step.op("Mul", x, step.op("Sigmoid", x))


def _mish_by_parts(step: _Step, x: ir.Value) -> ir.Value:
    return step.op("Mul", x, step.op("Tanh", step.op("Softplus", x)))


def _gelu_by_parts(step: _Step, x: ir.Value) -> ir.Value:
    scaled = step.op("Div", x, step.number("sqrt_two", 2.0**0.5))
    one_plus = step.op("Add", step.op("Erf", scaled), step.number("one", 1.0))
    return step.op("Mul", step.builder.op("Mul", [x, one_plus], f"/{step.name}/Mul_1"), step.number("half", 0.5))


def _exp(step: _Step, x: ir.Value) -> ir.Value:
    return step.op("Exp", step.op("Neg", step.op("Abs", x)))


def _log(step: _Step, x: ir.Value) -> ir.Value:
    return step.op("Log", step.op("Add", step.op("Abs", x), step.number("one", 1.0)))


def _sqrt(step: _Step, x: ir.Value) -> ir.Value:
    return step.op("Sqrt", step.op("Add", step.op("Mul", x, x), step.number("one", 1.0)))


def _reciprocal(step: _Step, x: ir.Value) -> ir.Value:
    return step.op("Reciprocal", step.op("Add", step.op("Exp", x), step.number("one", 1.0)))


def _rms_norm(step: _Step, x: ir.Value) -> ir.Value:
    square = step.op("Pow", x, step.number("two", 2.0))
    axes = step.builder.constant(f"{step.name}.axes", np.array([-1], dtype=np.int64))
    mean = step.op("Add", step.op("ReduceMean", square, axes), step.number("epsilon", 1e-5))
    return step.op("Div", x, step.op("Sqrt", mean))


_BY_PARTS: Final[Mapping[str, Callable[[_Step, ir.Value], ir.Value]]] = MappingProxyType(
    {
        "clip": _clip,
        "prelu": _prelu,
        "silu": _silu,
        "mish_by_parts": _mish_by_parts,
        "gelu_by_parts": _gelu_by_parts,
        "exp": _exp,
        "log": _log,
        "sqrt": _sqrt,
        "reciprocal": _reciprocal,
        "rms_norm": _rms_norm,
    }
)
"""Activation -> what writes it with several operators; exp, log, sqrt and reciprocal stay where they are tame."""


@dataclass(frozen=True)
class EveryActivation:
    """Every covered activation in a row, each after a sparse layer and followed by LayerNormalization.

    The norms keep values near 1, so that an error in any activation shows at the end.
    """

    width: int = 64
    density: float = 0.25

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_at_least(2, width=self.width)
        require_density(self.density)

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [batch, width] -> y [batch, width]."""
        builder = GraphBuilder()
        dims = ("batch", self.width)
        value = builder.input("x", dims)
        for name in (*_ONE_OP, *_BY_PARTS):
            weight = random_weight(self.width, self.width, self.density, rng)
            value = builder.linear(value, weight, random_bias(self.width, rng), f"{name}.linear")
            step = _Step(builder, name)
            if name in _ONE_OP:
                op_type, attributes = _ONE_OP[name]
                value = step.op(op_type, value, **attributes)
            else:
                value = _BY_PARTS[name](step, value)
            value = builder.layer_norm(value, self.width, f"{name}.norm")
        return builder.model("every_activation", {"y": Output(value, dims)})
