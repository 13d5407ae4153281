"""Rounding of sparse layers to bfloat16, and what the results of a model change by for samples of its inputs."""

from dataclasses import dataclass

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import InterpretationError, PassFailedException

from ..dialect.semantics.interpreter import Foreign
from ..passes.kernels.round_layers import ROUNDED, RoundLayers
from .quantize_layers import text_on
from .sample_codes import change_of
from .samples import Samples, batches_of, observe_batches


@dataclass(frozen=True)
class RoundBySamples(ModulePass):
    """Round layers, and compare results before and behind it where there are samples: an array [samples, ...] each."""

    name = RoundLayers.name

    rounding: RoundLayers
    samples: Samples | None
    foreign: Foreign | None = None
    """Runner of nodes that were left as they are."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.samples is None:
            self.rounding.apply(ctx, op)
            return
        batches = batches_of(op, self.samples)
        try:
            before = observe_batches(op, batches, self.foreign).results
            self.rounding.apply(ctx, op)
            change = change_of(before, observe_batches(op, batches, self.foreign).results)
        except (InterpretationError, ValueError) as error:
            raise PassFailedException(f"{self.name}: {error}") from error
        some, *left = text_on(op, ROUNDED).split("; ")
        op.attributes[ROUNDED] = StringAttr("; ".join([f"{some}, results change by {change:.2%}", *left]))
