"""Choose the kernel families that execute each linear layer, by the width of the batch tile, and say why.

```mlir
%y = pebble.linear %x, %w : ...
// ->
%y = pebble.linear %x, %w kernel <permute_lookup from 1, count_blocks from 8, blocks [count_blocks: 4],
    predicted [1: 3.7, 8: 16.2, ...], "density 0.050, stored sparse; next narrow_blocks 5.9 us at 1, sparse_rows 29.1 us
    at 8; count_blocks 113 us at 64 over 4 blocks of inputs, 116 over 3"> : ...
```

At each width the family wins that the cost model of `redpebble.kernels.prediction` predicts to be the fastest on the
machine that the options describe; the times that `pebble-measure-kernels` wrote on the module count instead where there
are any. Dense kernels are
candidates like all others, so nothing is chosen that is expected to be slower than they are. A weight that
`pebble-sparsify` left dense may meet NaN or infinity, whose products with its zeros are not zero: it stays dense.

A family over blocks of inputs has one number of them for all widths, as a layer is packed once. It is the usual one of
its `BlockRule` unless another one is predicted, or was measured, to gain more than a little over the
widths at which the family is among the fastest, and to lose at none; `blocks` gives numbers for all layers instead.

A layer whose kernel a person wants (`dialect/wanted_kernels.py`) gets that one, whatever it is predicted to take. A
wish that came with a file is left where this CPU has no such kernel; one among the options is refused.

Layers that are alike, as those of an encoder are, are priced once.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from math import inf, prod
from types import MappingProxyType
from typing import Final

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ...dialect.attributes.kernels import KernelAttr
from ...dialect.ops.images import Conv2dOp
from ...dialect.ops.layers import LinearOp, float_layers
from ...dialect.provenance import node_key, node_name
from ...dialect.wanted_kernels import WantedKernel, in_words, read_wishes
from ...kernels import few_bits_times
from ...kernels.families import FAMILIES, block_counts
from ...kernels.machine import Machine, MachineOptions
from ...kernels.similar_layers import Likeness, likeness_of
from ...kernels.tile_widths import WIDTHS, times_of_rows
from ...kernels.work import Layer
from ...sparse.csr import CscMatrix
from ..analysis.block_choices import Clock, LayerTimes, given_blocks, with_blocks
from ..analysis.layer_costs import (
    few_bits_at,
    layer_key,
    layers_of_ops,
    read_bytes,
    take_measurements,
    times_by_layer,
)
from ..analysis.weights import Weight, density, weight_of
from ..images.convolution_kernels import choose_for_convolutions

WORTH_PACKING: Final = 0.97
"""A family that no wider tile uses is packed for itself, so it has to be faster by more than this."""

WORTH_A_COPY: Final = 3.0
"""Times as fast as on codes that kernels on floats have to be for many rows to be worth a copy of the weights."""

WORTH_FLOATS: Final = 1.25
"""The same for one row."""

NO_TIMES: Final[Mapping[int, float]] = MappingProxyType({})

LEAST_LANES: Final = 4

NAMED: Final = 3
"""The nearest measured layers that a reason names."""


@dataclass(frozen=True)
class ChooseKernels(MachineOptions, ModulePass):
    """Write a kernel attribute on every linear layer, and on every convolution, whose tiles are of 64 pixels."""

    name = "pebble-choose-kernels"

    blocks: tuple[str, ...] = ()
    """Numbers of blocks of inputs for all layers, as far as these can have them: words such as `count_blocks=4`."""
    kernels: tuple[str, ...] = ()
    """Kernels for layers by name: words such as `fc1=count_blocks`, or `fc1=strips from 1, sparse_rows from 8`."""

    rounds: bool = False
    """Whether convolutions may be rounded to bfloat16 afterwards, and count as if they were."""

    @staticmethod
    def on(machine: Machine, kernels: Iterable[tuple[str, str]] = (), *, rounds: bool = False) -> "ChooseKernels":
        """Return the pass for a machine, with kernels for layers by name."""
        return ChooseKernels(**ChooseKernels.numbers(machine), kernels=in_words(kernels), rounds=rounds)

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        linears = [*float_layers(op.walk())]
        try:
            weights = [_weight(linear) for linear in linears]
            layers, machine = layers_of_ops(linears), self.machine
            convolutions = [one for one in op.walk() if isinstance(one, Conv2dOp) and one.times is None]
            wanted = read_wishes(op, self.kernels)
            choose_for_convolutions(convolutions, self.machine, wanted, rounds=self.rounds)
            measured, priced = times_by_layer(take_measurements(op)), _Priced(given_blocks(self.blocks), self.machine)
            for linear, weight, layer in zip(linears, weights, layers, strict=True):
                found: Clock = {}
                if measured:
                    key = layer_key(linear.weight, layer)
                    found = {width: measured[key, width] for width in WIDTHS if (key, width) in measured}
                decided, times = priced.times_of(layer, found)
                one = wanted.get(node_key(linear))
                kernel = None if one is None else _wanted_kernel(one, decided, times)
                if kernel is None:
                    theirs = _runtime_us(linear, decided, machine)
                    kernel = kernel_for(weight, decided, times, machine, theirs)
                linear.kernel = kernel
        except ValueError as error:
            raise PassFailedException(f"{self.name}: {error}") from error


class _Priced:
    """The layers of a module that have been priced."""

    def __init__(self, given: Mapping[str, int], machine: Machine) -> None:
        self._given, self._machine = given, machine
        self._known: list[tuple[Likeness, Mapping[str, int], LayerTimes]] = []
        self._places: dict[tuple[tuple[int, int], int], list[int]] = {}

    def times_of(self, layer: Layer, found: Clock) -> tuple[Layer, LayerTimes]:
        """Return a layer with its numbers of blocks and its times, those of one that is alike if nothing was found."""
        likeness = None if found else likeness_of(layer)
        known = None if likeness is None else self._alike(likeness)
        if known is not None:
            _, blocks, times = known
            return layer.with_blocks(blocks), times
        # a layer's facts take more memory than its weight: those of a copy go with it
        decided, times = with_blocks(copy(layer), self._given, self._machine, found)
        if likeness is not None:
            self._places.setdefault((likeness.shape, likeness.step), []).append(len(self._known))
            self._known.append((likeness, decided.block_counts, times))
        return decided, times

    def _alike(self, likeness: Likeness) -> tuple[Likeness, Mapping[str, int], LayerTimes] | None:
        """Return the first priced layer that is alike, out of those with about as many connections."""
        steps = range(likeness.step - 1, likeness.step + 2)
        near = sorted(place for step in steps for place in self._places.get((likeness.shape, step), ()))
        return next((known for known in map(self._known.__getitem__, near) if likeness.alike(known[0])), None)


def _weight(linear: LinearOp) -> Weight:
    weight = weight_of(linear.weight)
    if weight is None:
        where = f"node {node_name(linear)}" if node_name(linear) else linear.name
        raise ValueError(f"the weight of {where} is no constant")
    return weight


def _runtime_us(linear: LinearOp, layer: Layer, machine: Machine) -> dict[int, float]:
    """Return the microseconds of a weight of few bits in onnxruntime, by width; nothing of other weights."""
    few_bits = few_bits_at(linear.weight)
    if few_bits is None:
        return {}
    size = layer.inputs, layer.outputs
    return few_bits_times.runtime_times(few_bits, *size, WIDTHS, machine, layer.other_bytes)


def kernel_for(
    weight: Weight, layer: Layer, times: LayerTimes, machine: Machine, theirs: Mapping[int, float] = NO_TIMES
) -> KernelAttr:
    """Return the fastest families by width, with their times and the reason.

    theirs are the times of onnxruntime by width, of a weight of few bits.
    """
    chosen = fastest_families(times, machine.lanes, theirs)
    starts = {
        width: family
        for before, (width, family) in zip(("", *chosen.values()), chosen.items(), strict=False)
        if family != before
    }
    stored = "sparse" if isinstance(weight, CscMatrix) else "dense"
    far = ", weights beyond the second-level cache" if layer.other_bytes + read_bytes(weight) > machine.l2_bytes else ""
    others = _comparisons(starts, times) + _block_prices(starts, times) + _neighbours(layer, times, machine)
    return KernelAttr(
        starts,
        f"density {density(weight):.3f}, stored {stored}{far}{others}",
        {width: times.predicted[width][family] for width, family in chosen.items()},
        {width: known[chosen[width]] for width, known in times.measured.items()},
        {name: count for name, count in block_counts(layer).items() if name in starts.values()},
    )


def _wanted_kernel(wanted: WantedKernel, layer: Layer, times: LayerTimes) -> KernelAttr | None:
    """Return the families that a person wants for a layer; None where it cannot have them, and need not.

    Raises:
        ValueError: it cannot have one of them, and a person has asked for it here.
    """
    chosen: dict[int, str] = {}
    for width in WIDTHS:
        family = wanted.family_at(width, times.predicted[width])
        if family is None:
            return None
        chosen[width] = family
    return KernelAttr(
        wanted.families,
        "asked for",
        {width: times.predicted[width][family] for width, family in chosen.items()},
        {
            width: times.measured[width][family]
            for width, family in chosen.items()
            if family in times.measured.get(width, {})
        },
        {family: count for family, count in block_counts(layer).items() if family in wanted.families.values()},
    )


def fastest_families(
    times: LayerTimes, lanes: int = Machine.lanes, theirs: Mapping[int, float] = NO_TIMES
) -> dict[int, str]:
    """Return the family for each width, the widest first, as most of a large batch runs there.

    theirs are the times of onnxruntime by width, of a weight of few bits.
    """
    if (small := _of_few_bytes(times, lanes, theirs)) is not None:
        return {width: small for width, known in times.predicted.items() if small in known}
    chosen: dict[int, str] = {}
    for width in reversed(WIDTHS):
        known = times.measured.get(width, times.predicted[width])
        packed = [family for family in known if family in chosen.values()]
        worth = WORTH_PACKING * min((known[family] for family in packed), default=float("inf"))
        fastest = min(known, key=known.__getitem__)
        chosen[width] = fastest if known[fastest] < worth else min(packed, key=known.__getitem__)
    return dict(sorted((chosen | _further(times, chosen)).items()))


def _of_few_bytes(times: LayerTimes, lanes: int, theirs: Mapping[int, float]) -> str | None:
    """Return the family of weights of few bits where nothing on floats is far faster for any rows; else None.

    It is taken for all rows then: kernels on floats would read a second copy of the weights, several times as large,
    and weights are of few bits to be small. Where onnxruntime is faster than codes, and floats are as well, the copy is
    worth it: the layer would gain nothing otherwise. Vectors of 4 are for CPUs that nothing else runs on, in libraries
    whose other code reads these weights: there it is taken whatever it costs.
    """
    known = {width: times.measured.get(width, times.predicted[width]) for width in WIDTHS}
    small = [name for name in known[1] if FAMILIES[name].rounds == "groups"]
    # each number of rows counts as much as any other
    family = min(small, key=lambda name: prod(one[name] for one in known.values()), default=None)
    if family is None or lanes == LEAST_LANES:
        return family
    worth = {width: WORTH_FLOATS if width == 1 else WORTH_A_COPY for width in WIDTHS}
    for width, one in known.items():
        fastest = min(one.values())
        if one[family] > worth[width] * fastest or one[family] > theirs.get(width, inf) > fastest:
            return None
    return family


def _further(times: LayerTimes, chosen: Mapping[int, str]) -> dict[int, str]:
    """Return the families at widths between and beyond those of all kernels, where they save time on so many rows."""
    time_of_width = {width: times.measured.get(width, times.predicted[width])[chosen[width]] for width in WIDTHS}
    further: dict[int, str] = {}
    known = {width for width, priced in times.predicted.items() if priced}
    time_without = times_of_rows(time_of_width, known - set(WIDTHS))
    for width in time_without:
        family = min(times.predicted[width], key=times.predicted[width].__getitem__)
        worth = 1.0 if family in chosen.values() else WORTH_PACKING
        if times.predicted[width][family] < worth * time_without[width]:
            further[width] = family
    return further


def _comparisons(starts: Mapping[int, str], times: LayerTimes) -> str:
    """Return the best of the families that were not chosen, at the widths from which the chosen ones are used."""
    texts: list[str] = []
    for width, family in starts.items():
        known = times.measured.get(width, times.predicted[width])
        others = [other for other in known if other != family]
        if others:
            best = min(others, key=known.__getitem__)
            texts.append(f"{best} {known[best]:.3g} us at {width}")
    return f"; next {', '.join(texts)}" if texts else ""


def _neighbours(layer: Layer, times: LayerTimes, machine: Machine) -> str:
    """Return which measured layers have corrected what is predicted, where that decided at a width."""
    near = machine.examples.near(layer)
    if near is None or set(WIDTHS) <= times.measured.keys():
        return ""
    return f"; corrected by measured {', '.join(map(str, near.places[:NAMED]))}"


def _block_prices(starts: Mapping[int, str], times: LayerTimes) -> str:
    """Return what families in use would take over another number of blocks."""
    return "".join(
        f"; {price.family} {price.microseconds:.3g} us at {price.width} over {price.blocks} "
        f"{'blocks' if price.blocks > 1 else 'block'} of inputs, {price.other_us:.3g} over {price.other}"
        for price in times.blocks
        if price.family in starts.values()
    )
