"""Types of tensors, as ONNX and numpy name them."""

from types import MappingProxyType
from typing import Final

DTYPES: Final = MappingProxyType(
    {
        "tensor(float)": "float32",
        "tensor(float16)": "float16",
        "tensor(double)": "float64",
        "tensor(int64)": "int64",
        "tensor(int32)": "int32",
        "tensor(bool)": "bool",
        "tensor(uint8)": "uint8",
        "tensor(int8)": "int8",
    }
)
"""Names of numpy's dtypes by ONNX's names of types."""
