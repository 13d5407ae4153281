"""Attributes of nodes that become ours: one that nobody reads has to have its default, or change nothing.

A conversion records what its converter reads. So an attribute that a newer ONNX or onnxruntime adds to an operator is
refused until somebody writes down what it means.
"""

from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final, cast

import onnx
import onnx_ir
from onnx.defs import SchemaError

from .conversion import Conversion, NotCovered

Key = tuple[str, str]
Plain = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]

MICROSOFT: Final = "com.microsoft"

_OF_FLOAT8: Final = "it is about codes of floats of 8 bits, which no converter takes"
_OF_WEIGHT: Final = "no runtime takes another one than the weight's"
_OF_ROTARY: Final = "it is about rotated queries, and do_rotary is refused"
_OF_HIDDEN: Final = "masks of integers are refused, and keys that come later weigh 0 by any such number"
_OF_NORM: Final = "it is about normalized queries and keys, whose weights are refused as inputs"
_OF_SCORES: Final = "it is about scores as an output, which is refused"

HARMLESS: Final[Mapping[Key, Mapping[str, str]]] = MappingProxyType(
    {
        ("", "Attention"): {
            "qk_matmul_output_mode": _OF_SCORES,
            "softmax_precision": "it is at least that of floats of 32 bits",
        },
        ("", "AveragePool"): {"count_include_pad": "a window without pads has none to count"},
        ("", "BatchNormalization"): {"momentum": "it is about training, and training_mode is refused"},
        ("", "Cast"): {"round_mode": _OF_FLOAT8, "saturate": _OF_FLOAT8},
        ("", "Conv"): {"kernel_shape": _OF_WEIGHT},
        ("", "ConvInteger"): {"kernel_shape": _OF_WEIGHT},
        ("", "ConvTranspose"): {"kernel_shape": _OF_WEIGHT},
        ("", "DequantizeLinear"): {"axis": "one scale has no axis, and the weight of a layer is read with its own"},
        (MICROSOFT, "DequantizeLinear"): {"axis": "one scale has no axis"},
        ("", "Dropout"): {"ratio": "outside of training nothing is dropped", "seed": "nothing is dropped"},
        ("", "MaxPool"): {"storage_order": "it is about places of maxima as an output, which is refused"},
        ("", "QuantizeLinear"): {"axis": "one scale has no axis, and several are refused", "saturate": _OF_FLOAT8},
        (MICROSOFT, "QuantizeLinear"): {"axis": "one scale has no axis, and several are refused"},
        ("", "ReduceMin"): {"keepdims": "its only reader in a pattern expands the least value of all"},
        ("", "Resize"): {
            "cubic_coeff_a": "it is read where the mode is cubic",
            "exclude_outside": "it is read where the mode is cubic",
            "extrapolation_value": "it is about cut images, which are refused",
            "keep_aspect_ratio_policy": "it is about sizes, and read where these are given",
            "nearest_mode": "it is read where the mode is nearest",
        },
        (MICROSOFT, "Attention"): {"mask_filter_value": _OF_HIDDEN, "rotary_embedding_dim": _OF_ROTARY},
        (MICROSOFT, "MultiHeadAttention"): {"mask_filter_value": _OF_HIDDEN},
        (MICROSOFT, "GroupQueryAttention"): {
            "k_norm_epsilon": _OF_NORM,
            "q_norm_epsilon": _OF_NORM,
            "qk_norm_epsilon": _OF_NORM,
            "qk_output": _OF_SCORES,
            "kv_cache_bit_width": "it is about a quantized past, whose types are refused",
            "rotary_interleaved": _OF_ROTARY,
        },
    }
)
"""(domain, operator) -> attributes that change nothing where their converter does not read them, and why."""

DEFAULTS: Final[Mapping[Key, Mapping[str, Plain]]] = MappingProxyType(
    {
        (MICROSOFT, "Attention"): {"do_rotary": 0, "past_present_share_buffer": 0},
        (MICROSOFT, "GroupQueryAttention"): {
            "causal": 1,
            "do_rotary": 0,
            "k_quant_type": "NONE",
            "local_window_size": -1,
            "sliding_window_cache": 0,
            "softcap": 0.0,
            "v_quant_type": "NONE",
        },
    }
)
"""Defaults of attributes that no schema of ONNX says; a test holds them equal to onnxruntime's."""

READ_BEHIND: Final[Mapping[Key, Set[str]]] = MappingProxyType(
    {
        ("", "Cast"): {"to"},
        ("", "Concat"): {"axis"},
        ("", "ConstantOfShape"): {"value"},
        ("", "ConvInteger"): {"auto_pad", "dilations", "group", "pads", "strides"},
        ("", "DequantizeLinear"): {"block_size", "output_dtype"},
        ("", "Gather"): {"axis"},
        ("", "GatherND"): {"batch_dims"},
        ("", "InstanceNormalization"): {"epsilon"},
        ("", "LeakyRelu"): {"alpha"},
        ("", "QuantizeLinear"): {"block_size", "output_dtype"},
        ("", "ReduceSum"): {"axes", "keepdims"},
        ("", "Reshape"): {"allowzero"},
        ("", "ScatterElements"): {"axis", "reduction"},
        ("", "ScatterND"): {"reduction"},
        ("", "Shape"): {"end", "start"},
        ("", "Softmax"): {"axis"},
        ("", "Squeeze"): {"axes"},
        ("", "Transpose"): {"perm"},
        ("", "Unsqueeze"): {"axes"},
        (MICROSOFT, "QGemm"): {"alpha", "transA", "transB"},
        (MICROSOFT, "QLinearLeakyRelu"): {"alpha"},
    }
)
"""(domain, operator) -> attributes of nodes that others become part of: the patterns that look back read them."""


def check_attributes(conversion: Conversion) -> None:
    """Check that nothing was overlooked of a node, and of those before it that became part of it.

    Raises:
        NotCovered: names an attribute, its value, and the one that is accepted.
    """
    own = conversion.node
    for node in (own, *conversion.replaced):
        key = (node.domain, node.op_type)
        read = conversion.read if node is own else READ_BEHIND.get(key, frozenset[str]())
        for name, attribute in node.attributes.items():
            if name in read or name in HARMLESS.get(key, ()):
                continue
            default, value = _default(node, name, conversion.scope.opset_of(node.domain)), _plain(attribute)
            if default is None or value != default:
                place = "" if node is own else f" of {node.op_type} {node.name or node.outputs[0].name}"
                accepted = "none" if default is None else _text(default)
                raise NotCovered(f"expected {name}={accepted}{place}, got {_text(value)}")


def attribute_or_default(conversion: Conversion, node: onnx_ir.Node, name: str) -> Plain | None:
    """Return an attribute of a node, or what it means where it is left out; None where that is not known."""
    stated = conversion.attribute_of(node, name)
    return _default(node, name, conversion.scope.opset_of(node.domain)) if stated is None else _plain(stated)


def _default(node: onnx_ir.Node, name: str, opset: int) -> Plain | None:
    """Return what an attribute means that is left out, None where that is not known."""
    known = DEFAULTS.get((node.domain, node.op_type), {}).get(name)
    if known is not None or node.domain:
        return known
    try:
        attributes = onnx.defs.get_schema(node.op_type, opset, node.domain).attributes
    except SchemaError:
        return None
    stated = attributes[name].default_value if name in attributes else onnx.AttributeProto()
    return None if stated.type == onnx.AttributeProto.UNDEFINED else _plain(onnx_ir.from_proto(stated))


def _plain(attribute: onnx_ir.Attr) -> Plain | None:
    """Return the value of an attribute as one that can be compared, None for a tensor or a graph."""
    value: object = attribute.value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, int | float | str):
        return value
    return tuple(cast("Sequence[int]", value)) if isinstance(value, Sequence) else None


def _text(value: Plain | None) -> str:
    return repr(list(value) if isinstance(value, tuple) else value) if value is not None else "that is given"
