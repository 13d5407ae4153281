"""Names and versions by which a node of ours is known, for hosts that make nothing new and load no exporter."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from numpy.typing import NDArray

Attributes = Mapping[str, str | int]
"""Attributes of a node of ours."""

Constants = Sequence[NDArray[Any] | None]
"""Its inputs behind the activations."""

DOMAIN: Final = "ai.redpebble"
DOMAIN_VERSION: Final = 1
OP_TYPE: Final = "SparseNetwork"
"""The first part of the operator's name; networks of equal bodies share the number behind it."""

CODES_OP_TYPE: Final = "SparseNetwork_codes"
"""The same of networks that yield codes: onnxruntime has one type of results for an operator, or any types."""

FORMAT: Final = 1
"""Version of the attribute `network`; raised whenever it changes its meaning."""


def node_identity(op_type: str, attributes: Attributes, constants: Constants) -> str:
    """Return a digest of all by which the code of one node differs from that of another, in hexadecimal digits.

    The digest that a node states is over bytes, which under other types and shapes are other numbers.
    """
    stated = (op_type, attributes.get("format"), attributes.get("activations"), attributes.get("digest"))
    kinds = [None if array is None else (array.dtype.str, array.shape) for array in constants]
    return hashlib.sha256(repr((stated, kinds)).encode()).hexdigest()
