"""The sizes of a call: expressions evaluated, and temporaries given their places."""

from ..llvm.flow import loop, select
from ..llvm.values import ALIGNMENT, Number
from .table import Frame, Problem
from .words import WordCode, Words, rarely


def emit_sizes(code: WordCode) -> None:
    """Emit `evaluate (frame) -> status`, and `lay_out (frame, base) -> bytes`."""
    _emit_evaluate(code)
    _emit_lay_out(code)


def _emit_evaluate(code: WordCode) -> None:
    """Emit `evaluate (frame)`: the values of all expressions, checked where they must be equal or large enough."""

    @code.function()
    def evaluate(frame: Frame) -> Words:
        header, values = frame.header, frame.values
        with loop(header.windows) as index:
            window = header.window_table.row(index)
            total = frame.symbols[window.symbol] + window.added
            count = select(total < 0, 0, total.quotient(window.step))
            frame.symbols[header.symbols - header.windows + index] = count.larger(window.fewest)
        symbol_count, table = header.symbols, header.expression_table
        terms = code.words(3)  # numerator, denominator, whether a product was too large
        stride = symbol_count + 2
        with loop(header.expressions) as index:
            row = table.at(index * stride)
            terms[0] = row[0]
            terms[1] = row[1]
            terms[2] = 0
            # a size to the power of p is p times a factor of the numerator, or of the denominator
            with loop(symbol_count) as symbol:
                power = row[symbol + 2]
                size = frame.symbols[symbol]
                is_below = power < 0
                term = select(is_below, code.constant(1), 0)
                with loop(select(is_below, -power, power)):
                    product = terms[term].product(size)
                    terms[term] = product.number
                    overflow = product.is_too_large.number()
                    terms[2] |= overflow
            _emit_quotient(code, frame, terms, values.at(index))
        first = values.at(header.first_equal)
        with loop(header.equals) as pair:
            here = first.at(pair * 4)
            left, second, plus, other = (here[index] for index in range(4))
            right = second + plus
            differs, unlike_other = (left != accepted for accepted in (right, other))
            with rarely(differs & unlike_other):
                code.leave(code.address("report", frame, Problem.Unequal, left, right))
        behind = first.at(header.equals * 4)
        with loop(header.leasts) as pair:
            size, least = (behind.at(pair * 2)[index] for index in range(2))
            with rarely(size < least):
                code.leave(code.address("report", frame, Problem.TooSmall, size, least))
        frame.scratch_bytes = header.scratch_bytes
        with loop(header.scratches) as index:
            scratch = header.scratch_table.row(index)
            size = round_up(scratch.whole_bytes + values[scratch.expression] * scratch.unit_bytes)
            before = frame.scratch_bytes
            frame.scratch_bytes = select(before < size, size, before)
        return code.null


def _emit_quotient(code: WordCode, frame: Frame, terms: Words, target: Words) -> None:
    """Write numerator / denominator, 0 where a size by which is divided is 0."""
    numerator, denominator = terms[0], terms[1]
    with rarely(terms[2] != 0):
        code.leave(code.address("report", frame, Problem.TooLarge, numerator, denominator))
    target[0] = numerator
    with rarely(denominator != 1):
        is_zero = denominator == 0
        divisor = select(is_zero, 1, denominator)
        rest = select(is_zero, 0, numerator.remainder(divisor))
        with rarely(rest != 0):
            code.leave(code.address("report", frame, Problem.NoMultiple, numerator, denominator))
        target[0] = select(is_zero, 0, numerator.quotient(divisor))


def _emit_lay_out(code: WordCode) -> None:
    """Emit `lay_out (frame, base) -> bytes`: temporaries get their places behind `base`, scratch memory its behind."""

    @code.function()
    def lay_out(frame: Frame, base: Words) -> Number:
        header, values, buffers = frame.header, frame.values, frame.buffers
        areas, area_count = header.area_table, header.areas
        starts, end = code.fresh_words(area_count), code.words()
        end[0] = 0
        with loop(area_count) as index:
            area = areas.row(index)
            size = values[area.expression] * area.unit_bytes
            starts[index] = end[0]
            end[0] = round_up(end[0] + size)
        first = header.inputs + header.outputs
        with loop(header.temporaries) as index:
            place = header.temporary_table.row(index)
            number = place.area
            units = values[areas.row(number).expression]
            offset = starts[number] + place.offset * units
            buffer = first + index
            buffers[buffer] = base.after(offset)
        frame.scratch = base.after(end[0])
        return end[0]


def round_up(size: Number) -> Number:
    """Return the next multiple of a cache line."""
    return (size + (ALIGNMENT - 1)) & -ALIGNMENT
