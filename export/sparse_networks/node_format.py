"""Names and versions by which a node of ours is known, for hosts that make nothing new and load no exporter."""

from typing import Final

DOMAIN: Final = "ai.redpebble"
DOMAIN_VERSION: Final = 1
OP_TYPE: Final = "SparseNetwork"
"""The first part of the operator's name; networks of equal bodies share the number behind it."""

CODES_OP_TYPE: Final = "SparseNetwork_codes"
"""The same of networks that yield codes: onnxruntime has one type of results for an operator, or any types."""

FORMAT: Final = 1
"""Version of the attribute `network`; raised whenever it changes its meaning."""
