"""A pruned model whose sparse layers compute with integers of eight bits."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ..driver.compiler import optimized
from ..options import Options

SAMPLES: Final = 512
"""Samples that ranges of values are taken from, about."""


def quantized(model: onnx_ir.Model, batches: Sequence[Mapping[str, NDArray[Any]]]) -> onnx_ir.Model:
    """Return the model as `optimize --precision int8` makes it; float layers stay where int8 changes too much."""
    taken = list[Mapping[str, NDArray[Any]]]()
    for batch in batches:
        is_like_first = not taken or all(batch[name].shape[1:] == taken[0][name].shape[1:] for name in batch)
        if is_like_first and sum(min(map(len, one.values())) for one in taken) < SAMPLES:
            taken.append(batch)
    samples = {name: np.concatenate([batch[name] for batch in taken]) for name in taken[0]}
    return optimized(model, Options("optimize", samples=samples)).model
