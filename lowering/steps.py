"""The table of steps: op to how it becomes a function of the program, and how threads may cut its rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xdsl.ir import Operation, SSAValue

from ..dialect.ops.attention import Attention, AttentionOp, PastAttentionOp
from ..dialect.ops.elementwise import BinaryOp
from ..dialect.ops.graphs import AggregateOp, AttendEdgesOp, EdgeListOp, OverEdges, SortEdgesOp
from ..dialect.ops.image_network import ImageNetworkOp
from ..dialect.ops.layers import BatchMatmulTransposeBOp, LinearOp
from ..dialect.ops.recurrences import ScanOp
from ..dialect.ops.tile import TileOp, chain_in
from ..dialect.ops.training.edge_slopes import EdgeSlopesOp, EdgeTotalsOp
from ..dialect.ops.training.gradients import SampledProductOp, SumRowsOp
from ..dialect.symbolic_sizes import ONE, Size, SymbolicShape, product
from ..foundation.extensible_table import ExtensibleTable
from .attention.step import (
    AttentionStep,
    attention_rows,
    attention_scratch_bytes,
    attention_tiles,
    sizes_taken_as_equal,
)
from .gradients.sampled_product import (
    SampledProductStep,
    emit_sum_rows,
    sampled_rows,
    sampled_scratch_bytes,
    sampled_tiles,
)
from .graphs.edge_list import FAILURE_BYTES, EdgeListStep, edges_taken_as_equal
from .graphs.edge_slopes import emit_edge_slopes, emit_edge_totals, slope_rows, slope_tiles
from .graphs.sort import SortStep, sort_tiles
from .graphs.step import EdgeStep, edge_rows, edge_tiles
from .images.step import ImageStep, image_tiles
from .llvm.call_tables import SizeTable
from .llvm.values import Floats, Longs
from .program import EqualSizes, ScratchBytes, TiledRows
from .quantized.step import QuantizedStep, chain_of, quantized_rows, quantized_scratch_bytes, quantized_tiles, shares_of
from .tiles import row_major
from .tiles.batch_matmul import ProductStep, product_scratch_bytes, product_tiles
from .tiles.row_major import RowMajorStep
from .tiles.scan_loop import ScanStep, samples_taken_as_equal, scan_rows, scan_tiles
from .tiles.tile_loop import TileStep, emit_tile_loop, tiled_rows

Shapes = Mapping[SSAValue, SymbolicShape]


def _never(_: Operation) -> bool:
    return False


def _no_sizes(_: Operation, __: Shapes) -> Sequence[EqualSizes]:
    return ()


@dataclass(frozen=True)
class StepKind:
    """The way in which ops of a type become steps."""

    emit: Callable[[Any, RowMajorStep], int | Sequence[ScratchBytes] | None]
    """Emits the function of an op, or that in which threads do its rows together; returns the bytes of scratch memory
    of a thread where it needs any."""
    rows: Callable[[Any, SizeTable], Size] | None = None
    """Returns the rows that threads may cut into ranges; None where the step is one piece of work."""
    tiles: Callable[[Any], TiledRows] | None = None
    """Returns how threads may cut these rows."""
    shares: Callable[[Any], bool] = _never
    """Returns whether threads may do rows together."""
    read: int | None = None
    """The first operands that code reads where they are, others being packed; None for all."""
    may_fail: bool = False
    equal: Callable[[Any, Shapes], Sequence[EqualSizes]] = _no_sizes
    """Returns the pairs of different sizes that the code takes to be the same."""


def _tiles(op: TileOp, step: RowMajorStep) -> int:
    known = step.tile_constants(op)
    table = known.pointers(step.table)
    tile_step = TileStep(known.number, step.pointers, known.table, table, step.scratch, step.rows)
    return emit_tile_loop(step.code, op, tile_step, step.sharing)


def _images(op: ImageNetworkOp, step: RowMajorStep) -> int | Sequence[ScratchBytes]:
    images = step.number(step.sizes.shapes[op.inputs[0]][0]) if op.has_found_codes else None
    return ImageStep(op, step, images).emit(*step.rows)


def _attention(op: Attention, step: RowMajorStep) -> int:
    attention = AttentionStep(step.code, step.sizes, step.size_table, op, step.pointers, step.scratch.cast(Floats))
    attention.emit(*step.rows)
    return attention_scratch_bytes(op)


def _codes(op: TileOp | LinearOp, step: RowMajorStep) -> int:
    chain, x = chain_of(op), op.operands[0]
    values = step.number(product(step.sizes.shapes[x])) if chain.is_dynamic else None
    layers = QuantizedStep(step.code, op, chain, step.constants, step.table, step.scratch, values, step.sharing)
    layers.emit(step.pointers[x], step.pointers[op.results[0]], *step.rows)
    return quantized_scratch_bytes(op, chain)


def _product(op: BatchMatmulTransposeBOp, step: RowMajorStep) -> int:
    ProductStep(op, step).emit()
    return product_scratch_bytes(op, step.code.target)


def _over_edges(op: OverEdges, step: RowMajorStep) -> None:
    EdgeStep(op, step).emit(*step.rows)


def _edge_list(op: EdgeListOp, step: RowMajorStep) -> int:
    EdgeListStep(op, step, step.scratch.cast(Longs)).emit()
    return FAILURE_BYTES


def _sort(op: SortEdgesOp, step: RowMajorStep) -> None:
    if step.sharing is None:
        SortStep(op, step).emit()
    else:
        SortStep(op, step).emit_shared(step.sharing)


def _scan(op: ScanOp, step: RowMajorStep) -> int:
    return ScanStep(op, step).emit()


def _sampled_product(op: SampledProductOp, step: RowMajorStep) -> int:
    SampledProductStep(op, step).emit(*step.rows)
    return sampled_scratch_bytes(op, step.code.target.lanes)


def _broadcast(left: SymbolicShape, right: SymbolicShape) -> Iterator[EqualSizes]:
    """Yield the sizes of operands that are neither broadcast nor known to be the same."""
    for first, second in zip(reversed(left), reversed(right), strict=False):
        if first != second and ONE not in (first, second):
            yield EqualSizes(first, second)


def _equal_operands(op: Operation, shapes: Shapes) -> Sequence[EqualSizes]:
    return [*_broadcast(shapes[op.left], shapes[op.right])] if isinstance(op, BinaryOp) else ()


def _equal_samples(op: BatchMatmulTransposeBOp, shapes: Shapes) -> Sequence[EqualSizes]:
    return [*_broadcast(shapes[op.x][:-2], shapes[op.y][:-2])]


OVER_EDGES: Final = StepKind(_over_edges, lambda op, sizes: edge_rows(op, sizes.shapes[op.result]), tiles=edge_tiles)
ROW_MAJOR: Final = StepKind(row_major.emit, equal=_equal_operands)
"""Ops of all other types."""

CODES: Final = StepKind(
    _codes,
    quantized_rows,
    tiles=lambda op: tiled_rows(op) if isinstance(op, TileOp) else quantized_tiles(),
    shares=lambda op: shares_of(op) > 1,
    read=1,
)
"""Layers on codes, in a tile, or one by itself that finds its codes."""

ATTENTION: Final = StepKind(_attention, attention_rows, tiles=lambda _: attention_tiles(), equal=sizes_taken_as_equal)
"""Attention, also with keys and values of a past."""

STEPS: Final = ExtensibleTable[type[Operation], StepKind](
    {
        TileOp: StepKind(
            _tiles,
            lambda op, sizes: product(sizes.shapes[op.inputs[0]][:-1]),
            tiles=tiled_rows,
            shares=lambda op: op.schedule.shares > 1,
        ),
        ImageNetworkOp: StepKind(
            _images,
            lambda op, sizes: sizes.shapes[op.inputs[0]][0],
            tiles=image_tiles,
            shares=lambda op: op.threads.value.data > 1,
        ),
        AttentionOp: ATTENTION,
        PastAttentionOp: ATTENTION,
        AggregateOp: OVER_EDGES,
        AttendEdgesOp: OVER_EDGES,
        EdgeTotalsOp: StepKind(emit_edge_totals, lambda op, _: slope_rows(op), tiles=lambda _: slope_tiles()),
        EdgeSlopesOp: StepKind(emit_edge_slopes, lambda op, _: slope_rows(op), tiles=lambda _: slope_tiles()),
        EdgeListOp: StepKind(_edge_list, may_fail=True, equal=edges_taken_as_equal),
        SortEdgesOp: StepKind(
            _sort,
            lambda op, sizes: sizes.shapes[op.sources][0],
            tiles=lambda _: sort_tiles(),
            shares=lambda _: True,
        ),
        ScanOp: StepKind(
            _scan,
            lambda op, sizes: scan_rows(op, sizes.shapes),
            tiles=scan_tiles,
            equal=samples_taken_as_equal,
        ),
        BatchMatmulTransposeBOp: StepKind(
            _product,
            lambda op, sizes: product(sizes.shapes[op.x][:-2]),
            tiles=lambda _: product_tiles(),
            equal=_equal_samples,
        ),
        SumRowsOp: StepKind(emit_sum_rows),
        SampledProductOp: StepKind(
            _sampled_product, lambda op, _: sampled_rows(op), tiles=lambda _: sampled_tiles(), read=2
        ),
    }
)
"""The steps of each type of op that has code of its own."""


def kind_of(op: Operation) -> StepKind:
    """Return how an op becomes a step."""
    return CODES if chain_in(op) is not None else STEPS.get(type(op), ROW_MAJOR)
