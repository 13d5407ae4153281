"""Operators that are covered: one table from (domain, operator) to the function that converts a node."""

from typing import Final

from ...foundation.extensible_table import ExtensibleTable
from .attention.fused import FUSED_ATTENTION_CONVERTERS
from .attention.rotary import ROTARY_CONVERTERS
from .conversion import Converter
from .dequantized import DEQUANTIZING_CONVERTERS
from .elementwise import ELEMENTWISE_CONVERTERS
from .few_bits import FEW_BITS_CONVERTERS
from .linear import convert_gemm, convert_matmul
from .message_passing.sums import GRAPH_CONVERTERS
from .movement import MOVEMENT_CONVERTERS
from .normalization import NORMALIZATION_CONVERTERS
from .on_images.interleaving import INTERLEAVING_CONVERTERS
from .on_images.normalization import NORMALIZING_CONVERTERS, group_norm_or
from .on_images.quantized import convert_quantized_conv, convert_scaled_conv
from .on_images.resampling import RESAMPLING_CONVERTERS
from .on_images.windows import IMAGE_CONVERTERS, convert_conv
from .quantized import (
    QUANTIZED_CONVERTERS,
    convert_product,
    convert_scaled,
    quantized_or,
)
from .recurrences import RECURRENCE_CONVERTERS
from .slicing import SLICING_CONVERTERS

CONVERTERS: Final = ExtensibleTable[tuple[str, str], Converter](
    {
        **DEQUANTIZING_CONVERTERS,
        **ELEMENTWISE_CONVERTERS,
        **FEW_BITS_CONVERTERS,
        ("", "Gemm"): quantized_or(convert_gemm, convert_product),
        ("", "MatMul"): quantized_or(convert_matmul, convert_product),
        ("", "Mul"): quantized_or(quantized_or(ELEMENTWISE_CONVERTERS["", "Mul"], convert_scaled_conv), convert_scaled),
        **FUSED_ATTENTION_CONVERTERS,
        **IMAGE_CONVERTERS,
        ("", "Conv"): quantized_or(convert_conv, convert_quantized_conv),
        **GRAPH_CONVERTERS,
        **INTERLEAVING_CONVERTERS,
        **MOVEMENT_CONVERTERS,
        ("", "Reshape"): group_norm_or(MOVEMENT_CONVERTERS["", "Reshape"]),
        **NORMALIZATION_CONVERTERS,
        **NORMALIZING_CONVERTERS,
        **QUANTIZED_CONVERTERS,
        **RECURRENCE_CONVERTERS,
        **RESAMPLING_CONVERTERS,
        **ROTARY_CONVERTERS,
        **SLICING_CONVERTERS,
    }
)
"""The empty domain is ai.onnx."""

LAYERS: Final = frozenset(
    {
        ("", "Conv"),
        ("", "ConvTranspose"),
        ("", "Gemm"),
        ("", "MatMul"),
        *FEW_BITS_CONVERTERS,
        *FUSED_ATTENTION_CONVERTERS,
        *GRAPH_CONVERTERS,
        *DEQUANTIZING_CONVERTERS,
        *QUANTIZED_CONVERTERS,
        *RECURRENCE_CONVERTERS,
    }
)
"""Operators that become layers or attention; the others alone gain nothing."""
