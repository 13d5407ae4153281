"""Quantized layers as a step of a program: rows of floats, or of codes, become bytes, layer by layer, and either again.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).

Some rows go through all layers before the next ones do. Hidden neurons lie in the order of their panels, by which the
weights of the next layer are packed. Where dead rows are dropped, layers are in stages, between which that is done.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.codes import CodesAttr
from ...dialect.ops.constants import constant_array, constant_matrix
from ...dialect.ops.quantized_layers import QuantizedLayer
from ...dialect.ops.tile import TileOp, chain_in
from ...dialect.ops.tile_chain import CodeChain
from ...dialect.ops.tile_depth_first import LayerGroupAttr
from ...dialect.symbolic_sizes import Size, product
from ...dialect.tensors import shape_of
from ...kernels import byte_lookup, byte_quads, byte_tiles
from ...kernels.byte_lookup import VECTOR, LookupForm, by_length, by_length_in_vectors
from ...kernels.byte_quads import COLUMNS, LEAST_COLUMNS, QUAD, QuadForm, block_quads
from ...kernels.byte_times import FORMS, TILES, WINDOWS
from ...kernels.tile_widths import BYTE_ROWS
from ...sparse.csr import CscMatrix, Indices
from ..cpu_target import CpuTarget
from ..llvm.builder import Code
from ..llvm.call_tables import ConstantTable, Packing, SizeTable
from ..llvm.flow import branch, call, loop
from ..llvm.transposition import columns_to_rows, rows_to_columns
from ..llvm.values import BYTE, FLOAT_BYTES, Bytes, Floats, Index, Number, Pointers, Value
from ..program import TiledRows, TileTime
from ..tiles.row_major import Sharing
from .byte_lanes import lookup_form
from .depth_first import GroupLines, OfLayer, depth_first_codes, lines_of, pack_group
from .found_codes import FoundCodes, find_codes, found_bytes
from .live_rows import LiveRows, drop_dead, dropping_layers, live_bytes, write_live
from .lookup_layer import LayerEnd, lookup_layer
from .quad_layer import Blocks, lines_to_words, quad_layer, words_to_lines
from .rounding import WORDS, CodeBounds, Strided, copy_codes, placed_codes, quantizing
from .tile_layer import TILE_SCRATCH_BYTES, tile_layer

WIDE_LANES: Final = 16
"""Lanes of the vectors whose registers hold the sums of quads: one each, or two."""

WIDE_QUADS: Final = LookupForm(WIDE_LANES, bytewise=True)

LINE: Final = 64

PANEL_STEPS: Final = 2
"""Steps that take as long as the end of a panel, about."""

SHARED_ROWS: Final = 8
"""Rows that threads do not part."""

ROWS_US: Final = 10.0
"""Microseconds of so many rows: only for how threads share them."""


def quantized_rows(op: Operation, sizes: SizeTable) -> Size:
    """Return the rows of the step."""
    return product(sizes.shapes[op.operands[0]][:-1])


def quantized_tiles() -> TiledRows:
    """Return how threads may cut those rows: what a row becomes does not depend on it."""
    return TiledRows((TileTime(SHARED_ROWS, 1, ROWS_US),), 1)


def quantized_scratch_bytes(op: Operation, chain: CodeChain) -> int:
    """Return the bytes of scratch memory that a thread needs."""
    live = live_bytes(_result_bytes(chain)) if dropping_layers(op) else 0
    groups = (group_bytes(group, chain) for group in groups_of(op))
    return _live_offset(chain) + max([live, *groups])


def groups_of(op: Operation | None) -> Sequence[LayerGroupAttr]:
    """Return the groups of layers of a step that run depth first."""
    return op.depth_first.groups if isinstance(op, TileOp) and op.depth_first is not None else ()


def group_bytes(group: LayerGroupAttr, chain: CodeChain) -> int:
    """Return the bytes of scratch memory of a group: its lines, and floats that it yields."""
    outputs, floats = chain.layers[group.layers[-1]].outputs, not _are_codes_behind(chain, group.layers[-1])
    return _lines(group, chain).line_bytes + (FLOAT_BYTES * COLUMNS * outputs if floats else 0)


def _lines(group: LayerGroupAttr, chain: CodeChain) -> GroupLines:
    return lines_of(group, chain.layers[group.layers.start].inputs, chain.layers[group.layers[-1]].outputs)


def _are_codes_behind(chain: CodeChain, index: int) -> bool:
    """Return whether a layer yields bytes, not floats."""
    return index < len(chain.layers) - 1 or chain.yields_bytes


def _result_bytes(chain: CodeChain) -> int:
    """Return the bytes of a row of the result."""
    return chain.layers[-1].outputs * (1 if chain.yields_bytes else FLOAT_BYTES)


def _live_offset(chain: CodeChain) -> int:
    """Return the bytes of scratch memory before that of live rows."""
    widest = max(layer.outputs for layer in chain.layers)
    # a layer whose codes are found at each call yields floats
    rows = COLUMNS * (chain.layers[-1].outputs + QUAD) if chain.yields_bytes else 0
    used = _found_offset(chain) + (found_bytes(_padded(widest)) if chain.is_dynamic else rows)
    return -(-used // LINE) * LINE


def _found_offset(chain: CodeChain) -> int:
    """Return the bytes of scratch memory before that of what is found at each call."""
    # code for CPUs without instructions for quads has a little too much
    quads = sum(_word_bytes(layer.inputs) for layer in chain.layers) + _sum_bytes(chain)
    quads += _word_bytes(chain.layers[-1].outputs) if chain.yields_bytes else 0
    return _row_bytes(chain) + (max(quads, TILE_SCRATCH_BYTES) if _wants_quads(chain) else 0)


def _sum_bytes(chain: CodeChain) -> int:
    """Return the bytes of sums, behind which those lie that pad records."""
    return FLOAT_BYTES * COLUMNS * (max(layer.outputs for layer in chain.layers) + 2 * QUAD)


def _padded(outputs: int) -> int:
    return -(-outputs // WIDE_LANES) * WIDE_LANES


def has_quads(chain: CodeChain, target: CpuTarget) -> bool:
    """Return whether many rows are done by quads."""
    return _wants_quads(chain) and target.multiplies_bytes


def has_tiles(chain: CodeChain, target: CpuTarget) -> bool:
    """Return whether several rows are done by tiles."""
    return chain.kernel is not None and chain.kernel.family_at(COLUMNS) == TILES and target.multiplies_tiles


def _wants_quads(chain: CodeChain) -> bool:
    return chain.kernel is not None and chain.kernel.family_at(COLUMNS) in FORMS


def _least_columns(chain: CodeChain, target: CpuTarget) -> int:
    """Return the rows from which quads, or tiles, do them."""
    assert chain.kernel is not None
    least = min(rows for rows, family in chain.kernel.choices.items() if family in FORMS)
    is_lacking = chain.kernel.family_at(COLUMNS) == TILES and not has_tiles(chain, target)
    return max(least, LEAST_COLUMNS) if is_lacking else least


def _quad_form(chain: CodeChain) -> QuadForm:
    assert chain.kernel is not None
    return FORMS[chain.kernel.family_at(COLUMNS)]


def _blocks(chain: CodeChain) -> int:
    return 1 if chain.kernel is None else chain.kernel.blocks.get(chain.kernel.family_at(COLUMNS), 1)


def _row_bytes(chain: CodeChain) -> int:
    return BYTE_ROWS * sum(_stride(layer.inputs) for layer in chain.layers)


def _word_bytes(features: int) -> int:
    """Return the bytes of the words of some features in all columns."""
    return -(-features // QUAD) * QUAD * COLUMNS


def _stride(features: int) -> int:
    """Return the bytes from a row of codes to the next: whole vectors, read beyond by a window, in other cache sets."""
    return (features // LINE + 2 | 1) * LINE


@dataclass(frozen=True)
class QuantizedStep:
    """The code of a step."""

    code: Code
    op: Operation
    """The tile of the layers, or the layer by itself."""
    chain: CodeChain
    constants: ConstantTable
    table: Pointers
    """The table of the addresses of packed constants."""
    scratch: Bytes
    values: Number | None = None
    """The number of values of the input, whose range is found, or None where that need not be known."""
    sharing: Sharing | None = None
    """The threads that do rows together, each its share of the outputs of every layer by look-ups."""

    def emit(self, x: Floats, y: Floats, begin: Number, end: Number) -> None:
        """Emit rows `begin` to `end`, some of them at a time."""
        chain, (inputs, outputs) = self.chain, (shape_of(value)[-1] for value in (self.chain.x, self.chain.result))
        if self.values is not None:
            # every thread finds it by itself: they would otherwise have to meet in between
            self._emit_range(x, self.values)
        with loop(end - begin, BYTE_ROWS) as done:
            row = begin + done
            count = (end - row).smaller(BYTE_ROWS)
            source, target = (
                Strided(buffer.cast(Bytes), row.constant(size * (1 if is_bytes else FLOAT_BYTES))).row(row)
                for buffer, size, is_bytes in ((x, inputs, chain.reads_bytes), (y, outputs, chain.yields_bytes))
            )
            self.emit_rows(source, target, count)

    def _emit_codes(self, x: Strided, codes: Strided, count: Number) -> None:
        """Emit the codes of the input: rounded, or as they are."""
        features = self.chain.layers[0].inputs
        if self.chain.reads_bytes:
            call(copy_codes(self.code, features, signed=_is_signed(self.chain.codes)), x, codes, count)
            return
        (bounds,) = self._pointers("bounds", 0, _input_bounds) if self.values is None else [self._found.bounds]
        call(quantizing(self.code, features), x, codes, bounds, count)

    @property
    def _found(self) -> FoundCodes:
        return FoundCodes.at(self.scratch.after(_found_offset(self.chain)), _padded(self.chain.layers[0].outputs))

    def _emit_range(self, x: Floats, values: Number) -> None:
        """Emit the search for the codes of the input."""
        *_, sums, multiplier, _ = self._pointers("lookup", 0, partial(_packed_lookups, self._form, 0, 0))
        lanes = self._form.lanes
        outputs = -(-self.chain.layers[0].outputs // lanes) * lanes
        call(find_codes(self.code, lanes), x, values, sums, multiplier, outputs, self._found)

    def _with_found(self, packed: Sequence[Bytes]) -> Sequence[Value]:
        """Return packed arrays, bias and multiplier being those that were found."""
        if self.values is None:
            return packed
        *weights, _, _, tail = packed
        return [*weights, self._found.bias, self._found.multiplier, tail]

    def emit_rows(self, x: Strided, y: Strided, count: Number) -> None:
        """Emit all layers for `BYTE_ROWS` rows or fewer; rows that are dead behind a stage do not go on.

        Rows of a result of floats lie without gaps; rows of codes are padded to whole words.
        """
        chain, dropping, buffers = self.chain, dropping_layers(self.op), self._buffers()
        whole, schedule = range(len(chain.layers)), self.op.depth_first if isinstance(self.op, TileOp) else None
        if schedule is not None and self.sharing is None:
            one_by_one = partial(self._emit_stage, whole, x, y, count)
            branch(count >= schedule.width, partial(self._emit_groups, schedule.groups, x, y, count), one_by_one)
            return
        if not dropping or self.sharing is not None:
            self._emit_stage(whole, x, y, count)
            return
        live = LiveRows.at(self.scratch.after(_live_offset(chain)))
        live.begin(count)
        size, borders = _result_bytes(chain), [0, *(layer + 1 for layer in dropping), len(chain.layers)]
        results = Strided(live.results, count.constant(size))
        for first, end in pairwise(borders):
            inner = end < len(chain.layers)
            self._emit_stage(range(first, end), x, buffers[end] if inner else results, live.left[0])
            if inner:
                features, zero = chain.layers[end].inputs, chain.layers[end].codes.unsigned_zero
                call(drop_dead(self.code, features, _stride(features)), buffers[end].address, _byte(count, zero), live)
        zero = chain.output.zero if chain.yields_bytes and chain.output is not None else 0
        call(write_live(self.code, size), y, _byte(count, zero), count, live)

    def _emit_groups(self, groups: Sequence[LayerGroupAttr], x: Strided, y: Strided, count: Number) -> None:
        """Emit all layers for some rows, those of groups depth first."""
        buffers, layers, done = self._buffers(), self.chain.layers, 0
        for number, group in enumerate(groups):
            first, end = group.layers.start, group.layers.stop
            if done < first:
                self._emit_stage(range(done, first), x, buffers[first], count)
            elif not first:
                self._emit_codes(x, buffers[0], count)
            self._emit_group(number, group, buffers[end] if end < len(layers) else y, count)
            done = end
        if done < len(layers):
            self._emit_stage(range(done, len(layers)), x, y, count)

    def _emit_group(self, number: int, group: LayerGroupAttr, y: Strided, count: Number) -> None:
        """Emit a group of layers for 64 columns, the last ones of which may repeat one."""
        chain, lines = self.chain, _lines(group, self.chain)
        memory, x = self.scratch.after(_live_offset(chain)), self._buffers()[group.layers.start]
        floats, quads = memory.after(lines.line_bytes), lines.inputs // QUAD
        call(rows_to_columns(self.code, COLUMNS), x.address, memory, x.stride // QUAD, quads, count, COLUMNS)
        call(words_to_lines(self.code), memory, quads)
        stream = self._pointers("depth first", number, partial(_packed_group, number, self._center))
        form = LookupForm(WIDE_LANES, bytewise=self.code.target.multiplies_bytes)
        call(depth_first_codes(self.code, form, _ends_of(chain, group)), memory, floats, stream)
        last, made = group.layers[-1], floats
        if _are_codes_behind(chain, last):
            made = memory.after(COLUMNS * lines.first_output)
            call(lines_to_words(self.code), made, lines.outputs // QUAD)
        self._emit_rows(last, made, y, count)

    def _emit_stage(self, layers: range, x: Strided, y: Strided, count: Number) -> None:
        """Emit some layers, by quads where there are enough rows; x has the rows of the first layer of all."""
        buffers = self._buffers()
        are_codes = layers.start > 0
        source = buffers[layers.start] if are_codes or not self._are_words else x
        target = self.code.target

        def few() -> None:
            if not are_codes:
                self._emit_codes(x, buffers[0], count)
            self._emit_lookups(layers, y, count)

        def many() -> None:
            if has_tiles(self.chain, target):
                if not are_codes:
                    self._emit_codes(x, buffers[0], count)
                self._emit_tiles(layers, y, count)
                return
            if not are_codes and not self._are_words:
                self._emit_codes(x, buffers[0], count)
            self._emit_quads(layers, source, y, count)

        if has_quads(self.chain, target) and self.sharing is None:
            branch(count >= _least_columns(self.chain, target), many, few)
        else:
            few()

    @property
    def _are_words(self) -> bool:
        """Whether rows of the input are whole words of codes as layers take them."""
        chain = self.chain
        return chain.reads_bytes and not _is_signed(chain.codes) and chain.layers[0].inputs % QUAD == 0

    @property
    def _form(self) -> LookupForm:
        return lookup_form(self.code.target)

    @property
    def _center(self) -> int:
        return self.code.target.code_center

    def _emit_lookups(self, layers: range, y: Strided, count: Number) -> None:
        buffers = self._buffers()
        for index in layers:
            source, target = buffers[index], y if index == layers[-1] else buffers[index + 1]
            stride = _stride(self.chain.layers[index].inputs)
            function = lookup_layer(self.code, self._form, layer_end(self.chain, index), stride, self.chain.kernel)
            packed = self._pointers("lookup", index, partial(_packed_lookups, self._form, index, self._center))
            found, shares = self._with_found(packed), shares_of(self.op)
            with self._each(shares) as (first, end):
                call(function, source.address, target, found, count, first, end)
        if layers.stop == len(self.chain.layers) and _reorders_outputs(self.chain, self._form):
            (places,) = self._pointers("places", len(self.chain.layers) - 1, _places)
            vectors = self.chain.layers[-1].outputs // VECTOR
            with self._each(count) as (first, end):
                call(placed_codes(self.code, vectors), y.row(first), places, end - first)

    @contextmanager
    def _each(self, items: Index) -> Generator[tuple[Number, Number]]:
        """Emit work on items: the first one and the one behind the last, all where a thread works by itself."""
        count = self.scratch.constant(items) if isinstance(items, int) else items
        if self.sharing is None:
            yield count.constant(0), count
            return
        with self.sharing.each(count, meets=False) as item:
            yield item, item + 1

    def _emit_tiles(self, layers: range, y: Strided, count: Number) -> None:
        """Emit layers for rows of codes, tile by tile."""
        buffers, scratch = self._buffers(), self.scratch.after(_row_bytes(self.chain))
        for index in layers:
            inputs, outputs = self.chain.layers[index].inputs, self.chain.layers[index].outputs
            target = y if index == layers[-1] else buffers[index + 1]
            function = tile_layer(self.code, layer_end(self.chain, index), _stride(inputs))
            packed = self._with_found(self._pointers("tiles", index, partial(_packed_tiles, index, self._center)))
            call(function, buffers[index].address, target, packed, count, outputs, scratch)

    def _emit_quads(self, chosen: range, x: Strided, y: Strided, count: Number) -> None:
        """Emit layers for 64 columns, the last ones of which may repeat one."""
        layers, quads = self.chain.layers, _quad_form(self.chain)
        offsets = np.cumsum([_row_bytes(self.chain), *(_word_bytes(layer.inputs) for layer in layers)])
        *words, sums = (self.scratch.after(int(offset)) for offset in offsets)
        # rows of words of four codes become columns
        first, features = words[chosen.start], -(-layers[chosen.start].inputs // QUAD)
        call(rows_to_columns(self.code, COLUMNS), x.address, first, x.stride // QUAD, features, count, COLUMNS)
        if quads.scattered:
            call(words_to_lines(self.code), first, features)
        words.append(self.scratch.after(int(offsets[-1]) + _sum_bytes(self.chain)))
        for index in chosen:
            source, target = words[index], words[index + 1]
            blocks = _blocks(self.chain)
            inputs = Blocks(blocks, block_quads(layers[index].inputs, blocks))
            function = quad_layer(self.code, WIDE_QUADS, layer_end(self.chain, index), inputs, quads)
            packed = self._pointers("quads", index, partial(_packed_quads, index, self._center))
            call(function, source, sums, target, self._with_found(packed))
            leaves = index == chosen[-1]
            if _are_codes_behind(self.chain, index) if leaves else not quads.scattered:
                call(lines_to_words(self.code), target, -(-layers[index].outputs // QUAD))
        last = chosen[-1]
        self._emit_rows(last, words[last + 1] if _are_codes_behind(self.chain, last) else sums, y, count)

    def _emit_rows(self, index: int, sums: Bytes, y: Strided, count: Number) -> None:
        """Emit the rows of what columns hold behind a layer: floats, or words of four codes each."""
        outputs, are_codes = self.chain.layers[index].outputs, _are_codes_behind(self.chain, index)
        words = -(-outputs // QUAD) if are_codes else outputs
        # rows between layers have room behind them
        is_inner = index < len(self.chain.layers) - 1
        is_whole = is_inner or not are_codes or outputs % QUAD == 0
        rows = y.address if is_whole else self.scratch.after(_found_offset(self.chain))
        stride = _stride(outputs) // QUAD if is_inner else words
        call(columns_to_rows(self.code, COLUMNS), sums, rows, stride, words, count, COLUMNS)
        if not is_whole:
            call(copy_codes(self.code, outputs, signed=False), rows, QUAD * words, y, count)

    def _buffers(self) -> list[Strided]:
        offset, buffers = 0, list[Strided]()
        for layer in self.chain.layers:
            stride = _stride(layer.inputs)
            # to round the input twice is faster than to read what another core has just written
            memory = self.sharing.scratch if self.sharing is not None and not buffers else self.scratch
            buffers.append(Strided(memory.after(offset), self.scratch.constant(stride)))
            offset += BYTE_ROWS * stride
        return buffers

    def _pointers(self, kind: str, index: int, packing: Packing) -> list[Bytes]:
        return self.constants.pointers(self.table, (self.op, kind, index), packing, self.op)


def _byte(place: Number, value: int) -> Number:
    """Return a byte, of a code of either kind, as an argument."""
    return place.constant(value & 0xFF).narrow(BYTE)


def layer_end(chain: CodeChain, index: int) -> LayerEnd:
    """Return what becomes of the sums of a layer."""
    layer, last = chain.layers[index], index == len(chain.layers) - 1
    outputs = layer.outputs
    if last and chain.output is None:
        return LayerEnd("values", layer.activation, outputs, adds=chain.is_dynamic)
    kind = "codes" if not last else "bytes" if chain.yields_bytes else "rounded"
    signed = kind == "bytes" and chain.output is not None and _is_signed(chain.output)
    return LayerEnd(kind, None if layer.rounds_sums else layer.activation, outputs, signed=signed)


def _is_signed(codes: CodesAttr) -> bool:
    return codes.kind == "s8"


def chain_of(op: Operation | None) -> CodeChain:
    """Return the chain of an op that is known to compute one."""
    chain = None if op is None else chain_in(op)
    assert chain is not None
    return chain


def _input_bounds(op: Operation | None) -> list[NDArray[np.generic]]:
    chain = chain_of(op)
    return [CodeBounds.of(chain.codes).words()]


def _packed_lookups(form: LookupForm, index: int, center: int, op: Operation | None) -> list[NDArray[np.generic]]:
    """Return the arrays of `lookup_layer.Packed` for a layer of `op`."""
    chain = chain_of(op)
    inputs: Indices = np.arange(chain.layers[index].inputs)
    before = _order(op, chain, index - 1, form) if index else inputs
    order = _order(op, chain, index, form)
    panels = byte_lookup.pack(weight_of(chain.layers[index]), form, order, np.argsort(before))
    shares = _share_borders(panels.starts, shares_of(op), form)
    return [shares, *panels, *_outputs(chain, index, order, form.lanes, center)]


def shares_of(op: Operation | None) -> int:
    """Return the shares of the threads that do rows together."""
    return op.schedule.shares if isinstance(op, TileOp) else 1


def _share_borders(starts: NDArray[np.int64], shares: int, form: LookupForm) -> NDArray[np.int64]:
    """Return the first panel of each share, and the number of panels: about as many steps in each.

    Outputs that lie in one line of the cache stay together.
    """
    panels = len(starts) - 1
    work = starts + PANEL_STEPS * np.arange(panels + 1)
    borders = np.arange(0, panels, LINE // form.lanes)
    wanted = work[-1] * np.arange(1, shares) / shares
    nearest = np.abs(work[borders][:, None] - wanted[None, :]).argmin(axis=0)
    return np.array([0, *borders[nearest], panels], dtype=np.int64)


def _packed_quads(index: int, center: int, op: Operation | None) -> list[NDArray[np.generic]]:
    """Return the arrays of `quad_layer.PackedQuads` for a layer of `op`."""
    chain = chain_of(op)
    layer = chain.layers[index]
    packed = byte_quads.pack(weight_of(layer), _blocks(chain), _quad_form(chain))
    return [*packed, *_outputs(chain, index, np.arange(layer.outputs), QUAD, center)]


def _packed_tiles(index: int, center: int, op: Operation | None) -> list[NDArray[np.generic]]:
    """Return the arrays of `tile_layer.PackedTiles` for a layer of `op`."""
    chain = chain_of(op)
    layer = chain.layers[index]
    outputs = _outputs(chain, index, np.arange(layer.outputs), byte_tiles.TILE_ROWS, center)
    return [*byte_tiles.pack(weight_of(layer)), *outputs]


def _ends_of(chain: CodeChain, group: LayerGroupAttr) -> list[LayerEnd]:
    """Return the different ends of the layers of a group."""
    return list(dict.fromkeys(layer_end(chain, index).for_any_outputs() for index in group.layers))


def _packed_group(number: int, center: int, op: Operation | None) -> list[NDArray[np.generic]]:
    """Return the arrays of `depth_first.GroupStream` for a group of `op`."""
    chain, group = chain_of(op), groups_of(op)[number]
    ends, layers = _ends_of(chain, group), list[OfLayer]()
    for index in group.layers:
        weight, order = weight_of(chain.layers[index]), np.arange(chain.layers[index].outputs)
        end = ends.index(layer_end(chain, index).for_any_outputs())
        bias, multiplier, bounds = _outputs(chain, index, order, 1, center)
        layers.append(OfLayer(weight, bias, multiplier, bounds, end))
    floats = not _are_codes_behind(chain, group.layers[-1])
    return pack_group(layers, group.neuron_order, _lines(group, chain), floats=floats)


def _outputs(chain: CodeChain, index: int, order: Indices, unit: int, center: int) -> list[NDArray[np.generic]]:
    """Return bias and multiplier of the outputs in order, padded to whole units, and the bounds of their codes.

    The bias is that of sums of codes less `center`.

    Where codes are found at each call, they are the sums of weights, the multiplier, and what is added to results.
    """
    layer, padding = chain.layers[index], (0, -len(order) % unit)
    if chain.is_dynamic:
        weight = weight_of(layer)
        sums = np.bincount(weight.columns, weight.values, weight.shape[1]).astype(np.int32)
        return [np.pad(one[order], padding) for one in (sums, _constant(layer.multiplier), layer.added)]
    codes = chain.following(index)
    multiplier = _constant(layer.multiplier)
    if codes is not None and layer.rounds_sums:
        multiplier = multiplier / np.float32(codes.scale)
    positive = layer.activation is not None and layer.activation.kind == "relu"
    bounds = np.zeros(WORDS, np.int32) if codes is None else CodeBounds.of(codes, positive=positive).words()
    bias = bias_of(layer, weight_of(layer), center)[order]
    return [np.pad(bias, padding), np.pad(multiplier[order], padding), bounds]


def _order(op: Operation | None, chain: CodeChain, index: int, form: LookupForm) -> Indices:
    """Return the order in which panels have the outputs of a layer; those of the last one stay near their places.

    So do those of a stage whose next one may go by quads, and of groups of layers that run depth first.
    """
    weight = weight_of(chain.layers[index])
    ends = {end for group in groups_of(op) for end in (group.layers.start - 1, group.layers[-1])}
    inner = index < len(chain.layers) - 1
    if (inner and index in ends) or (index in dropping_layers(op) and _wants_quads(chain) and form.bytewise):
        return np.arange(weight.shape[1])
    if index < len(chain.layers) - 1:
        return by_length(weight)
    return by_length_in_vectors(weight) if _reorders_outputs(chain, form) else np.arange(weight.shape[1])


def _reorders_outputs(chain: CodeChain, form: LookupForm) -> bool:
    """Return whether codes that are yielded are put into their order vector by vector.

    Panels of outputs of about equal lengths have fewer steps, which save more than that takes where there are many.
    """
    has_windows = chain.kernel is not None and WINDOWS in chain.kernel.choices.values()
    return form.in_pairs and has_windows and chain.yields_bytes and chain.layers[-1].outputs >= VECTOR


def _places(op: Operation | None) -> list[NDArray[np.generic]]:
    """Return where the codes of each whole vector of the last layer's outputs lie in it."""
    chain = chain_of(op)
    order = by_length_in_vectors(weight_of(chain.layers[-1]))
    return [np.argsort(order[: len(order) // VECTOR * VECTOR].reshape(-1, VECTOR), axis=1).astype(np.uint8)]


def bias_of(layer: QuantizedLayer, weight: CscMatrix, center: int) -> NDArray[np.int32]:
    """Return the bias [outputs] of sums of unsigned codes less `center`, for which the zero counts as any other."""
    sums = np.bincount(weight.columns, weight.values, weight.shape[1]).astype(np.int64)
    # as in onnxruntime sums wrap around
    return (layer.added.astype(np.int64) - (layer.codes.unsigned_zero - center) * sums).astype(np.int32)


def weight_of(layer: QuantizedLayer) -> CscMatrix:
    """Return the weight of a layer without its zeros."""
    matrix = constant_matrix(layer.weight)
    assert matrix is not None
    return matrix


def _constant(value: SSAValue) -> NDArray[np.float32]:
    array = constant_array(value)
    assert array is not None
    return array
