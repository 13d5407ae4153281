"""Split of the rows of a step over threads: the one that is estimated to be the fastest.

One thread does all of them; or threads take chunks until none is left; or each does as many of the widest tiles as the
others, and they do together what is left. In all of them a row becomes the same bits.
"""

from ..llvm.flow import loop, when
from ..llvm.values import Number
from .row_tiles import tiles_of_width
from .table import Frame, Split, Step, Width
from .words import WordCode, Words, rarely


def emit_split(code: WordCode) -> None:
    """Emit `split (frame) -> i64`, the most threads that work on a step."""
    _emit_tiles(code)
    _emit_try_chunks(code)
    _emit_try_sharing(code)
    _emit_split_step(code)
    _emit_split(code)


def _emit_tiles(code: WordCode) -> None:
    """Emit `tiles (step, rows, word, narrow) -> ns`: the estimate in `word` for the tiles made of some rows.

    Behind `narrow` are the rows that are left for tiles whose bits differ from those of wider ones.
    """

    @code.function()
    def tiles(step: Step, rows: Number, word: Number, narrow: Words) -> Number:
        table, left, total = step.width_table, code.words(), code.words()
        left[0] = rows
        total[0] = 0
        narrow[0] = rows
        with loop(step.widths) as index:
            width = table.row(index)
            now, columns, least = left[0], width.columns, width.least_rows
            with rarely(now >= least):
                made = tiles_of_width(now, columns, least)
                total[0] += made.number * width[word]
                left[0] = now - made.rows
            with rarely(columns >= step.same_from):
                narrow[0] = left[0]
        return total[0]


def _emit_try_chunks(code: WordCode) -> None:
    """Emit `try_chunks (frame, step, split, columns, narrow, best)`: chunks of whole tiles, if that is sooner.

    Each chunk is cut into tiles that make the same bits of its rows as the tiles of all rows; `narrow` rows of those
    are left for tiles that do not.
    """

    @code.function()
    def try_chunks(frame: Frame, step: Step, split: Split, columns: Number, narrow: Number, best: Words) -> None:
        header, rows, threads = frame.header, split.rows, frame.threads
        tiles = rows.divided_up(threads * columns).smaller(header.chunk_rows.divided_up(columns))
        chunk = tiles * columns
        chunks = rows.divided_up(chunk)
        last = rows - (chunks - 1) * chunk
        # the time is that of the longest chunk, as often as a thread takes one
        others, own, word = code.words(), code.words(), Width.serial_ns
        longest = code.number("tiles", step, chunk, word, others).larger(code.number("tiles", step, last, word, own))
        rounds = chunks.divided_up(threads) * longest
        time = rounds + header.start_ns
        is_same = others[0] == 0
        is_same &= own[0] == narrow
        with rarely(is_same & (time < best[0])):
            best[0] = time
            split.workers = chunks.smaller(threads)
            split.chunk_rows = chunk


def _emit_try_sharing(code: WordCode) -> None:
    """Emit `try_sharing (frame, step, split, best)`: tiles that all threads do together, if that is sooner."""

    @code.function()
    def try_sharing(frame: Frame, step: Step, split: Split, best: Words) -> None:
        threads, unused = frame.threads, code.words()
        own, rest = shares(step, split.rows, threads)
        alone = code.number("tiles", step, own, Width.serial_ns, unused)
        time = alone + code.number("tiles", step, rest, Width.shared_ns, unused)
        time += frame.header.start_ns
        is_sooner = time < best[0]
        with rarely(is_sooner & (rest > 0)):
            split.workers = threads
            split.chunk_rows = 0


def shares(step: Step, rows: Number, threads: Number) -> tuple[Number, Number]:
    """Return the rows that each thread does for itself, in whole tiles of the widest, and what is left for all."""
    widest = step.width_table.columns
    share = rows // (widest * threads) * widest
    return share, rows - share * threads


def _emit_split_step(code: WordCode) -> None:
    """Emit `split_step (frame, step, split)`; a step that no thread can help with in time is done by one."""

    @code.function()
    def split_step(frame: Frame, step: Step, split: Split) -> None:
        expression, rows, best, narrow = step.rows, *(code.words() for _ in range(3))
        rows[0] = 0
        with when(expression >= 0, likely=True):
            rows[0] = frame.values[expression]
        count = rows[0]
        split.rows = count
        split.workers = 1
        is_serial = count <= step.serial_rows
        is_serial |= frame.threads == 1
        with when(is_serial, likely=True):
            code.leave()
        serial = code.number("tiles", step, count, Width.serial_ns, narrow)
        with when(serial <= frame.header.start_ns, likely=True):
            code.leave()
        best[0] = serial
        table = step.width_table
        with loop(step.widths) as index:
            columns = table.row(index).columns
            with rarely(columns >= step.same_from):
                code.call("try_chunks", frame, step, split, columns, narrow[0], best)
        with rarely(step.shared.is_set()):
            code.call("try_sharing", frame, step, split, best)


def _emit_split(code: WordCode) -> None:
    """Emit `split (frame) -> i64` over all steps."""

    @code.function("split")
    def most_workers(frame: Frame) -> Number:
        header, most = frame.header, code.words()
        most[0] = 1
        with loop(header.steps) as index:
            step, split = header.step_table.row(index), frame.splits.row(index)
            code.call("split_step", frame, step, split)
            most[0] = most[0].larger(split.workers)
        return most[0]
