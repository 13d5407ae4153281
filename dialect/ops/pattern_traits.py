"""Traits that say which canonicalization patterns belong to an op.

The patterns are in `dialect/canonicalization`; they need the ops, so that they are loaded only when they are asked for.
"""

from xdsl.pattern_rewriter import RewritePattern
from xdsl.traits import HasCanonicalizationPatternsTrait


class LayerPatterns(HasCanonicalizationPatternsTrait):
    """Patterns of `pebble.linear`."""

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        """Return the patterns, loaded only when they are asked for."""
        from ..canonicalization.arithmetic import DropZeroBias

        return (DropZeroBias(),)


class ElementwisePatterns(HasCanonicalizationPatternsTrait):
    """Patterns of the elementwise ops."""

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        """Return the patterns, loaded only when they are asked for."""
        from ..canonicalization.arithmetic import (
            DropNeutralOperand,
            DropRepeatedActivation,
        )
        from ..canonicalization.movement import RoundBeforeMoving

        return (DropNeutralOperand(), DropRepeatedActivation(), RoundBeforeMoving())


class MovementPatterns(HasCanonicalizationPatternsTrait):
    """Patterns of reshape, transpose, concat, and split."""

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        """Return the patterns, loaded only when they are asked for."""
        from ..canonicalization.movement import (
            DropIdentityMovement,
            JoinSplitParts,
            MergeReshapes,
            MergeTransposes,
            SplitConcatParts,
            TransposeUnmerged,
        )

        return (
            DropIdentityMovement(),
            MergeTransposes(),
            MergeReshapes(),
            TransposeUnmerged(),
            JoinSplitParts(),
            SplitConcatParts(),
        )
