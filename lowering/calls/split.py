"""Split of the rows of a step over threads: the one that is estimated to be the fastest.

One thread does all of them; or threads claim units of rows until none is left; or they claim as many of the widest
tiles as make the same number for each, and do together what is left. In all of them a row becomes the same bits.
"""

from ..llvm.flow import loop, select, when
from ..llvm.values import Number
from .row_tiles import tiles_of_width
from .table import Frame, Split, Step, Width
from .words import WordCode, Words, rarely


def emit_split(code: WordCode) -> None:
    """Emit `split (frame) -> i64`, the areas of scratch memory: one, or one for all threads and one for each."""
    _emit_tiles(code)
    _emit_try_units(code)
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


def _emit_try_units(code: WordCode) -> None:
    """Emit `try_units (frame, step, split, unit, narrow, best)`: units of so many rows, if that is sooner.

    Each unit is cut into tiles that make the same bits of its rows as the tiles of all rows; `narrow` rows of those
    are left for tiles that do not.
    """

    @code.function()
    def try_units(frame: Frame, step: Step, split: Split, unit: Number, narrow: Number, best: Words) -> None:
        rows, threads = split.rows, frame.threads
        units = rows.divided_up(unit)
        last = rows - (units - 1) * unit
        # the time is that of the longest unit, as often as a thread does one
        others, own, word = code.words(), code.words(), Width.serial_ns
        longest = code.number("tiles", step, unit, word, others).larger(code.number("tiles", step, last, word, own))
        rounds = units.divided_up(threads) * longest
        time = rounds + frame.header.start_ns
        is_same = others[0] == 0
        is_same &= own[0] == narrow
        with rarely(is_same & (time < best[0])):
            best[0] = time
            split.workers = units.smaller(threads)
            split.unit_rows = unit
            split.alone = rows


def _emit_try_sharing(code: WordCode) -> None:
    """Emit `try_sharing (frame, step, split, best)`: tiles that all threads do together, if that is sooner."""

    @code.function()
    def try_sharing(frame: Frame, step: Step, split: Split, best: Words) -> None:
        threads, unused = frame.threads, code.words()
        widest = step.width_table.columns
        own = split.rows // (widest * threads) * widest
        alone = own * threads
        rest = split.rows - alone
        time = code.number("tiles", step, own, Width.serial_ns, unused)
        time += code.number("tiles", step, rest, Width.shared_ns, unused)
        time += frame.header.start_ns
        is_sooner = time < best[0]
        with rarely(is_sooner & (rest > 0)):
            split.workers = threads
            split.unit_rows = widest
            split.alone = alone


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
                code.call("try_units", frame, step, split, columns, narrow[0], best)
        with rarely(step.shared.is_set()):
            code.call("try_sharing", frame, step, split, best)


def _emit_split(code: WordCode) -> None:
    """Emit `split (frame) -> i64` over all steps."""

    @code.function("split")
    def areas(frame: Frame) -> Number:
        header, most = frame.header, code.words()
        most[0] = 1
        with loop(header.steps) as index:
            step, split = header.step_table.row(index), frame.splits.row(index)
            code.call("split_step", frame, step, split)
            most[0] = most[0].larger(split.workers)
        return select(most[0] > 1, most[0] + 1, 1)
