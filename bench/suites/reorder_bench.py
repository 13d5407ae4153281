"""The benchmark of orders of neurons: what they gain on each layer, and how well the cost model ranks.

`python -m redpebble.bench.suites.reorder_bench [skewed|trained|wide|ranks ...] [--seconds S]` prints a table for each
part, all unless some are named. Kernels run on tiles in native loops, those of all orders in turn; one thread.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region
from xdsl.passes import ModulePass

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.constants import SparseConstantOp
from ...dialect.ops.layers import LinearOp
from ...dialect.provenance import node_name
from ...dialect.tensors import DYNAMIC, f32_tensor
from ...kernels.formats import permute_lookup
from ...kernels.machine import Machine
from ...kernels.work import Layer
from ...lowering.kernels.timed_kernels import RepeatedKernel
from ...models import zoo
from ...options import Options
from ...passes.analysis.block_choices import predicted_times
from ...passes.analysis.layer_costs import layers_of
from ...passes.neuron_order.permute_neurons import PermuteNeurons
from ...passes.neuron_order.reorder_neurons import ReorderNeurons
from ...passes.runner import context, run_passes
from ...pipeline import build, run_stages
from ...runtime.jit import host_target
from ...runtime.store.cache import default_folder
from ...sparse.csr import CscMatrix, Indices
from ...tools.console.console import console
from ...tuning.kernel_timing import KernelClock, PackedLayer
from ...tuning.machines import machine_for, packed_layer
from ...tuning.measure_kernels import Tuning

Mask = NDArray[np.bool_]

BATCHES: Final = (1, 8, 64)
TRAINED: Final = ("digits", "minilm(sparsity=0.9)")
MEASURED_SECONDS: Final = 0.1
"""Seconds for each layer and batch, all orders together."""

RANKED: Final = (
    "digits",
    "ffnn(depth=2, width=1024, density=0.1)",
    "ffnn(depth=2, width=500, density=0.5)",
    "bert_ffn(density=0.1)",
    "resmlp(depth=2, width=512)",
    "structured(width=512, pattern='block16x1', shuffled=True)",
)
RANKED_WIDTHS: Final = (1, 8, 16, 32, 64)

SHORTER: Final = ("inputs also transposed", "reordered", "both")
PACKED_COPIES: Final = 5

MOST_LAYERS: Final = 8
"""Layers of a model that are measured, from the first on: the others are like them."""


Known = tuple[LinearOp, Layer]
"""A layer and what is known of its cost among the others."""


class Line(NamedTuple):
    """A layer at a batch: microseconds of each order, predicted and measured."""

    layer: str
    batch: int
    predicted: Mapping[str, float]
    measured: Mapping[str, float]


def machine() -> Machine:
    """Return this machine as the compiler knows it."""
    return machine_for(host_target(), default_folder())


def simplified(spec: str) -> ModuleOp:
    """Return a model of the zoo after the passes that find its sparse layers."""
    return build(zoo.build(spec), until="simplify", foreign="keep")


def chain(weights: Sequence[CscMatrix]) -> ModuleOp:
    """Return layers one after the other, with Relu between them."""
    block = Block(arg_types=[f32_tensor((DYNAMIC, weights[0].shape[0]))])
    value = block.args[0]
    for number, weight in enumerate(weights):
        constant = SparseConstantOp(weight)
        last = number == len(weights) - 1
        layer = LinearOp(value, constant.result, None, None if last else ActivationAttr("relu"))
        block.add_ops([constant, layer])
        value = layer.result
    block.add_op(ReturnOp(value))
    func = FuncOp("main", ((block.args[0].type,), (value.type,)), Region(block))
    return ModuleOp([func])


def weight_of_reads(reads: Indices, input_order: Indices, output_order: Indices) -> CscMatrix:
    """Return a weight in which output n reads the inputs `reads[n]`, inputs and outputs then permuted."""
    inputs, outputs = np.argsort(input_order), np.argsort(output_order)
    rows = np.sort(inputs[reads], axis=1)[np.argsort(outputs)]
    count = rows.size
    values = np.random.default_rng(0).standard_normal(count, dtype=np.float32)
    pointers = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
    return CscMatrix((len(inputs), len(rows)), pointers, rows.ravel().astype(np.int64), values)


def band(width: int, reach: int, each: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the inputs of each neuron [width, each]: `each` of the `reach` neurons from its own on."""
    return (np.arange(width)[:, None] + rng.random((width, reach)).argsort(axis=1)[:, :each]) % width


def blocks(width: int, size: int, each: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the inputs of each neuron [width, each]: `each` neurons of its block of `size`."""
    return np.arange(width)[:, None] // size * size + rng.random((width, size)).argsort(axis=1)[:, :each]


def hidden(reads: Sequence[NDArray[np.int64]], rng: np.random.Generator, *, shuffled: bool) -> ModuleOp:
    """Return a network whose layers read `reads` [width, each]; its neurons stand as made, or all shuffled."""
    width = len(reads[0])
    orders = [rng.permutation(width) if shuffled else np.arange(width) for _ in range(len(reads) + 1)]
    return chain([weight_of_reads(own, orders[at], orders[at + 1]) for at, own in enumerate(reads)])


def skewed_mask(size: int, density: float, input_spread: float, output_spread: float, rng: np.random.Generator) -> Mask:
    """Inputs and outputs have densities that are log-normal with these deviations, as magnitude pruning leaves them."""
    inputs, outputs = (np.exp(rng.normal(0, spread, size)) for spread in (input_spread, output_spread))
    chance = density * np.outer(inputs / inputs.mean(), outputs / outputs.mean())
    return rng.random((size, size)) < np.minimum(1, chance)


def compared(variants: Mapping[str, ModuleOp], batches: Sequence[int], seconds: float) -> Iterator[Line]:
    """Yield each layer and batch with the times of all variants, measured in turn."""
    options = Options(tuning=Tuning.predicted(host_target(), default_folder()))
    layers = {name: _chosen(module, options) for name, module in variants.items()}
    for number, (linear, _) in enumerate(next(iter(layers.values()))):
        if isinstance(linear.weight.owner, SparseConstantOp):
            for batch in batches:
                yield _line({name: found[number] for name, found in layers.items()}, batch, seconds)


def _line(own: Mapping[str, Known], batch: int, seconds: float) -> Line:
    kernels: dict[str, RepeatedKernel] = {}
    predicted: dict[str, float] = {}
    for name, (linear, _) in own.items():
        assert linear.kernel is not None
        kernels[name] = RepeatedKernel(linear.kernel.family_at(batch), batch)
        predicted[name] = linear.kernel.predicted[batch]
    clock = KernelClock(kernels.values(), host_target())
    samples = {
        name: clock.sample(kernels[name], packed_layer(kernels[name].family, linear.weight, layer))
        for name, (linear, layer) in own.items()
    }
    first, _ = next(iter(own.values()))
    return Line(node_name(first), batch, predicted, clock.fastest(samples, seconds))


def _chosen(module: ModuleOp, options: Options) -> list[Known]:
    run_stages(module, options, after="arrange", until="choose")
    linears = [op for op in module.walk() if isinstance(op, LinearOp)]
    blocks = [linear.kernel.blocks if linear.kernel is not None else dict[str, int]() for linear in linears]
    layers = zip(layers_of([linear.weight for linear in linears]), blocks, strict=True)
    return list(zip(linears, (layer.with_blocks(own) for layer, own in layers), strict=True))[:MOST_LAYERS]


def changed(module: ModuleOp, change: ModulePass) -> ModuleOp:
    """Return a copy of a module after one pass."""
    copy = module.clone()
    run_passes(context(), copy, [change])
    return copy


def reordered(module: ModuleOp, seconds: float, batches: Sequence[int]) -> ModuleOp:
    """Return a copy of a module, its neurons in the best order found, and print what was tried."""
    copy = changed(module, ReorderNeurons(seconds=seconds, batch=tuple(batches), lanes=machine().lanes))
    console.print(str(copy.attributes.get("pebble.order", "nothing tried"))[:400], highlight=False, soft_wrap=True)
    return copy


def print_lines(title: str, lines: Sequence[Line]) -> None:
    """Print a line for each layer and batch, with what the first variant takes over the others."""
    names = list(lines[0].measured)
    table = Table("layer", "batch", *(f"{name}, us" for name in names), box=None, title=title, title_justify="left")
    for name in names[1:]:
        table.add_column(f"{name}: gain", justify="right")
        table.add_column("predicted", justify="right")
    for line in lines:
        first, words = names[0], [line.layer, str(line.batch), *(f"{line.measured[name]:.2f}" for name in names)]
        for name in names[1:]:
            words += [f"{times[first] / times[name]:.3f}x" for times in (line.measured, line.predicted)]
        table.add_row(*words)
    console.print(table)


def bench_skewed(seconds: float) -> None:
    """One row of activations through layers with skewed masks: rows by count, and all that makes sequences shorter.

    Of copies of each sequence the median counts, as it matters where in memory one lies.
    """
    table = Table("1024x1024, one row", "sorted by count, us", *SHORTER, box=None)
    kernel = RepeatedKernel(permute_lookup.FAMILY.name, 1)
    clock = KernelClock([kernel], host_target())
    for spreads in ((0.0, 0.0), (1.0, 0.0), (1.0, 0.7)):
        for density in (0.1, 0.05, 0.03):
            rng = np.random.default_rng(1)
            masks = [skewed_mask(1024, density, *spreads, rng) for _ in range(2)]
            before = chain([CscMatrix.from_dense(np.where(mask, np.float32(0.1), np.float32(0))) for mask in masks])
            weights = {"as it came": _last_weight(before), "reordered": _last_weight(reordered(before, seconds, (1,)))}
            samples = {
                f"{name} {transposed} {copy}": clock.sample(kernel, _packed(weight, transposed=transposed))
                for copy in range(PACKED_COPIES)
                for name, weight in weights.items()
                for transposed in (False, True)
            }
            fastest = clock.fastest(samples, 0.3)
            first, *others = (
                float(np.median([fastest[f"{name} {transposed} {copy}"] for copy in range(PACKED_COPIES)]))
                for name in weights
                for transposed in (False, True)
            )
            words = f"{1 - density:.2f} zeros, log-normal {spreads[0]:g}, {spreads[1]:g}"
            table.add_row(words, f"{first:.2f}", *(f"{first / other:.3f}x" for other in others))
    console.print(table)


def _last_weight(module: ModuleOp) -> CscMatrix:
    return [op for op in module.walk() if isinstance(op, SparseConstantOp)][-1].weight


def _packed(weight: CscMatrix, *, transposed: bool) -> PackedLayer:
    bias = np.zeros(weight.shape[1], dtype=np.float32)
    return PackedLayer(weight.shape, tuple(permute_lookup.pack_lookups(weight, bias, transposed=transposed)), 0)


def bench_trained(seconds: float) -> None:
    """Trained networks, pruned by magnitude: the best order against the one they came in."""
    for spec in TRAINED:
        try:
            before = simplified(spec)
        except ValueError as error:
            console.print(f"{spec}: {error}", highlight=False)
            continue
        after = reordered(before, seconds, BATCHES)
        print_lines(spec, list(compared({"as it came": before, "reordered": after}, BATCHES, MEASURED_SECONDS)))


WIDE: Final[Mapping[str, Callable[[int, np.random.Generator], NDArray[np.int64]]]] = {
    "band 128, 16 a neuron": lambda width, rng: band(width, 128, 16, rng),
    "blocks of 256, 16 a neuron": lambda width, rng: blocks(width, 256, 16, rng),
}


def bench_wide(seconds: float) -> None:
    """Layers that leave the cache, shuffled: the order found against the shuffled one and the generator's."""
    width = 16384
    for name, make in WIDE.items():
        reads = [make(width, np.random.default_rng(layer)) for layer in range(4)]
        shuffled = hidden(reads, np.random.default_rng(1), shuffled=True)
        variants = {
            "shuffled": shuffled,
            "reordered": reordered(shuffled, seconds, (1, 64)),
            "as made": hidden(reads, np.random.default_rng(1), shuffled=False),
        }
        print_lines(f"{name}, {width} wide, layer by layer", list(compared(variants, (1, 64), MEASURED_SECONDS)))


def bench_ranks() -> None:
    """Rank correlation of predicted and measured times: all kernels of all layers and widths, and of each network."""
    everything: list[tuple[float, float]] = []
    for spec in RANKED:
        try:
            points = list(_points(simplified(spec)))
        except ValueError as error:
            console.print(f"{spec}: {error}", highlight=False)
            continue
        everything += points
        console.print(f"{spec}: {_rank(points):.3f} over {len(points)} kernels", highlight=False)
    console.print(f"all: {_rank(everything):.3f} over {len(everything)}", highlight=False)
    console.print(f"orders of one network: {_rank(list(_orders())):.3f}", highlight=False)


def _points(module: ModuleOp) -> Iterator[tuple[float, float]]:
    known = machine()
    linears = [op for op in module.walk() if isinstance(op, LinearOp)]
    linears = list({(op.weight.type): op for op in linears}.values())[:3]
    for linear, layer in zip(linears, layers_of([linear.weight for linear in linears]), strict=True):
        alone = replace(layer, other_bytes=0.0)
        every = predicted_times(alone, known)
        times = {width: own for width, own in every.items() if width in RANKED_WIDTHS}
        kernels = {(family, width): RepeatedKernel(family, width) for width, own in times.items() for family in own}
        clock = KernelClock(kernels.values(), host_target())
        packed = {family: packed_layer(family, linear.weight, alone) for family, _ in kernels}
        samples = {kernel.symbol: clock.sample(kernel, packed[family]) for (family, _), kernel in kernels.items()}
        measured = clock.fastest(samples, 0.2)
        yield from ((times[width][family], measured[kernel.symbol]) for (family, width), kernel in kernels.items())


def _orders() -> Iterator[tuple[float, float]]:
    """Yield the times of a network of bands under several orders: the sum of its layers."""
    reads = [band(4096, 64, 16, np.random.default_rng(layer)) for layer in range(3)]
    shuffled = hidden(reads, np.random.default_rng(1), shuffled=True)
    variants = {"shuffled": shuffled, "made": hidden(reads, np.random.default_rng(1), shuffled=False)}
    for name in ("cuthill-mckee", "spectral", "support", "dealt"):
        variants[name] = changed(shuffled, ReorderNeurons(order=name, batch=(1, 64)))
    variants["again"] = changed(shuffled, PermuteNeurons(seed=5))
    lines = list(compared(variants, (1, 8, 64), MEASURED_SECONDS))
    for batch in (1, 8, 64):
        for name in variants:
            own = [line for line in lines if line.batch == batch]
            yield sum(line.predicted[name] for line in own), sum(line.measured[name] for line in own)


def _rank(points: Sequence[tuple[float, float]]) -> float:
    """Return the correlation of the ranks, none of which are equal."""
    ranks = np.array(points).argsort(axis=0).argsort(axis=0)
    count = len(points)
    return 1 - 6 * float(((ranks[:, 0] - ranks[:, 1]) ** 2).sum()) / (count**3 - count)


PARTS: Final[Mapping[str, Callable[[float], None]]] = {
    "skewed": bench_skewed,
    "trained": bench_trained,
    "wide": bench_wide,
    "ranks": lambda _: bench_ranks(),
}


def main(
    parts: Annotated[list[str] | None, typer.Argument(help="skewed, trained, wide, ranks")] = None,
    seconds: Annotated[float, typer.Option(help="Annealing of each network.")] = 3.0,
) -> None:
    """Measure and print."""
    unknown = [part for part in parts or () if part not in PARTS]
    if unknown:
        console.print(f"part: expected one of {', '.join(PARTS)}, got {unknown[0]!r}", highlight=False)
        sys.exit(2)
    for part in parts or PARTS:
        PARTS[part](seconds)


if __name__ == "__main__":
    typer.run(main)
