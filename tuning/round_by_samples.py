"""Rounding of sparse layers to bfloat16, and what the results of a model change by for samples of its inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import InterpretationError, PassFailedException

from redpebble.dialect.semantics.interpreter import Foreign, observe
from redpebble.passes.kernels.round_layers import ROUNDED, RoundLayers
from redpebble.tuning.quantize_layers import text_on
from redpebble.tuning.sample_codes import change_of


@dataclass(frozen=True)
class RoundBySamples(ModulePass):
    """Round layers, and compare results before and behind it where there are samples: an array [samples, ...] each."""

    name = RoundLayers.name

    rounding: RoundLayers
    samples: Mapping[str, NDArray[Any]] | None
    foreign: Foreign | None = None
    """Runner of nodes that were left as they are."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.samples is None:
            self.rounding.apply(ctx, op)
            return
        try:
            before = observe(op, self.samples, self.foreign).results
            self.rounding.apply(ctx, op)
            change = change_of(before, observe(op, self.samples, self.foreign).results)
        except (InterpretationError, ValueError) as error:
            raise PassFailedException(f"{self.name}: {error}") from error
        op.attributes[ROUNDED] = StringAttr(f"{text_on(op, ROUNDED)}; results change by {change:.2%}")
