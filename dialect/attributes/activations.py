"""The elementwise functions of one variable: their names and their parameters, once for every layer of the compiler."""

from types import MappingProxyType
from typing import Final

ACTIVATION_PARAMETERS: Final = MappingProxyType(
    {
        "abs": (),
        "celu": ("alpha",),
        "clip": ("min", "max"),
        "elu": ("alpha",),
        "erf": (),
        "exp": (),
        "gelu": (),
        "gelu_tanh": (),
        "hard_sigmoid": ("alpha", "beta"),
        "hard_swish": (),
        "leaky_relu": ("alpha",),
        "log": (),
        "mish": (),
        "neg": (),
        "reciprocal": (),
        "relu": (),
        "selu": ("alpha", "gamma"),
        "sigmoid": (),
        "silu": ("alpha",),
        "softplus": (),
        "sqrt": (),
        "square": (),
        "tanh": (),
    }
)
"""Kind of activation -> the names of its parameters, in the order in which they are printed.

`silu` is x * sigmoid(alpha * x); `gelu` is the exact form with erf, `gelu_tanh` the approximation with tanh.
`clip` holds -inf and inf where a bound is missing; min wins nowhere: min > max gives max, as in ONNX."""
