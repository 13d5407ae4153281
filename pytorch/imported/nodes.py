"""Nodes of an ONNX graph as an operator of torch sees them, and the table that operators are in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import onnx_ir
import torch

Tensor = Any
"""A tensor of torch; what an operator does with its inputs is checked when it runs."""

Value = Any
"""The value of an attribute, or a tensor that may be left out."""

Operator = Callable[..., Any]
"""(node, *inputs) -> a tensor, or a tuple of them; an input that is left out is None."""

OPERATORS: Final[dict[str, Operator]] = {}
"""Operator -> how it is computed; names of other domains than ONNX's own stand behind those: `com.microsoft.Gelu`."""

TYPES: Final[dict[int, torch.dtype]] = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    # half floats are trained, and so held, as whole ones
    10: torch.float32,
    11: torch.float64,
    16: torch.float32,
}
"""Element types of ONNX that have a form here."""


@dataclass(frozen=True)
class Node:
    """The part of a node that says what it computes."""

    name: str
    operator: str
    attributes: Mapping[str, Any]
    opset: int
    output_count: int
    types: tuple[int | None, ...] = ()
    """Element types of its inputs, as ONNX counts them; None where nobody says."""

    @staticmethod
    def of(node: onnx_ir.Node, opset: int) -> "Node":
        """Return what a node computes; its opset is the version of ONNX's own operators."""
        domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
        attributes = {name: one.value for name, one in node.attributes.items()}
        name = node.name or (node.outputs[0].name or "" if node.outputs else "")
        types = tuple(None if one is None or one.dtype is None else int(one.dtype) for one in node.inputs)
        return Node(name, domain + node.op_type, attributes, opset, len(node.outputs), types)

    def get(self, name: str, default: Value = None) -> Value:
        return self.attributes.get(name, default)

    def ints(self, name: str, value: Tensor | None = None) -> list[int] | None:
        """Return numbers that are an input, or in older opsets an attribute; None where there are none."""
        if value is not None:
            return [int(one) for one in value.flatten().tolist()]
        return None if (found := self.get(name)) is None else [int(one) for one in found]


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Let a function compute operators of these names."""

    def add(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return add
