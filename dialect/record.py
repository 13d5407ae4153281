"""Attributes as records: their fields are Python values, and one line says how they are written and read.

```python
class ScheduleAttr(Record, text="widths = {widths}[, shares = {shares}][, serial {serial}]"):
    name = "pebble.schedule"
    widths: Sequence[int]
    shares: int = 1
    serial: Times = {}
```

is `#pebble.schedule<widths = [1, 16], shares = 2, serial [1: 9.1]>`. What stands in brackets is left out where its
fields have their defaults; a field of type `bool` is its own name. `verify` says what is wrong with the values.
"""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from math import isnan
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast, dataclass_transform, get_args, get_origin
from typing import get_type_hints as type_hints

from typing_extensions import TypeIs, override
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.mlir_lexer import PunctuationSpelling
from xdsl.utils.runtime_final import runtime_final


@dataclass(frozen=True)
class Codec:
    """The form in which values of a type are kept, read and written."""

    parse: Callable[[AttrParser], Any]
    print: Callable[[Printer, Any], None]
    convert: Callable[[Any], Any] = lambda value: value
    """Makes the value that is kept of the one that is given."""
    key: Callable[[Any], Hashable] = lambda value: value
    """Makes what attributes are compared by, where that is not the value itself."""


def written(
    parse: Callable[[AttrParser], Any], text: Callable[[Any], str] = str, **rest: Callable[[Any], Any]
) -> Codec:
    """Return a codec of values that are printed as `text`."""
    return Codec(parse, lambda printer, value: printer.print_string(text(value)), **rest)


def parse_float(parser: AttrParser) -> float:
    """Parse a decimal number, or the words inf, -inf and nan that MLIR's grammar lacks."""
    negative = parser.parse_optional_punctuation("-") is not None
    for word in ("inf", "nan"):
        if parser.parse_optional_keyword(word) is not None:
            return -float(word) if negative else float(word)
    value = float(parser.parse_number(allow_boolean=False))
    return -value if negative else value


def float_text(value: float) -> str:
    """Return the shortest text that reads back as the same double, always with a dot."""
    if isnan(value):
        return "nan"
    text = repr(value)
    mantissa, exponent, power = text.partition("e")
    return f"{mantissa}.0e{power}" if exponent and "." not in mantissa else text


class Bounds(NamedTuple):
    """Two ends that both belong to what lies between: `9 to 12`."""

    lower: int
    upper: int


def _parse_bounds(parser: AttrParser) -> Bounds:
    lower = parser.parse_integer()
    parser.parse_keyword("to")
    return Bounds(lower, parser.parse_integer())


# floats are compared by their bits: zeros of both signs differ, and NaN is itself
FLOAT = written(parse_float, float_text, convert=float, key=float.hex)
QUOTED = Codec(AttrParser.parse_str_literal, lambda printer, value: printer.print_string_literal(value))
SCIENTIFIC = written(parse_float, "{:e}".format, convert=lambda value: float(f"{value:.3g}"), key=float.hex)

Text = Annotated[str, QUOTED]
"""A string in quotation marks; a plain `str` is an identifier."""

Estimate = Annotated[float, SCIENTIFIC]
"""A number of three digits, `1.2e-01`: more of them would make texts differ between machines."""

CODECS: Mapping[object, Codec] = MappingProxyType(
    {
        bool: Codec(lambda _: True, lambda _, __: None),
        int: written(lambda parser: parser.parse_integer(allow_boolean=False)),
        float: FLOAT,
        str: written(AttrParser.parse_identifier),
        Bounds: written(_parse_bounds, lambda ends: f"{ends[0]} to {ends[1]}", convert=lambda ends: Bounds(*ends)),
    }
)
"""Type of a field -> its codec, where the annotation does not bring one of its own."""


def sequence(item: Codec, delimiter: AttrParser.Delimiter = AttrParser.Delimiter.SQUARE) -> Codec:
    """Return the codec of a tuple: `[1, 2]`; in parentheses, an empty one is not there at all."""
    start, end = "[]" if delimiter is AttrParser.Delimiter.SQUARE else "()"

    def parse(parser: AttrParser) -> list[Any]:
        if start == "[":
            return parser.parse_comma_separated_list(delimiter, lambda: item.parse(parser))
        return parser.parse_optional_comma_separated_list(delimiter, lambda: item.parse(parser)) or []

    def show(printer: Printer, values: Sequence[Any]) -> None:
        if values or start == "[":
            printer.print_string(start)
            printer.print_list(values, lambda value: item.print(printer, value))
            printer.print_string(end)

    def convert(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(map(item.convert, values))

    return Codec(parse, show, convert, lambda values: tuple(map(item.key, values)))


def mapping(name: Codec, value: Codec) -> Codec:
    """Return the codec of a mapping: `[1: 6.8, 64: 113.0]`."""

    def parse(parser: AttrParser) -> dict[Any, Any]:
        known: dict[Any, Any] = {}

        def entry() -> None:
            found = name.parse(parser)
            if found in known:
                parser.raise_error(f"expected {found} once")
            parser.parse_punctuation(":")
            known[found] = value.parse(parser)

        parser.parse_comma_separated_list(AttrParser.Delimiter.SQUARE, entry)
        return known

    def show_entry(printer: Printer, entry: tuple[Any, Any]) -> None:
        name.print(printer, entry[0])
        printer.print_string(": ")
        value.print(printer, entry[1])

    def show(printer: Printer, known: Mapping[Any, Any]) -> None:
        printer.print_string("[")
        printer.print_list(known.items(), lambda entry: show_entry(printer, entry))
        printer.print_string("]")

    def convert(known: Mapping[Any, Any]) -> Mapping[Any, Any]:
        return MappingProxyType({name.convert(key): value.convert(one) for key, one in known.items()})

    return Codec(parse, show, convert, lambda known: tuple((key, value.key(one)) for key, one in known.items()))


def codec_of(kind: object) -> Codec:
    """Return the codec of a type: that of its annotation, or the one that follows from its parts."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return next(part for part in parts if isinstance(part, Codec))
    if origin is Mapping:
        return mapping(*map(codec_of, parts))
    if origin in (Sequence, tuple):
        return sequence(_bracketed(parts[0]) if _is_record(parts[0]) else codec_of(parts[0]))
    if _is_record(kind):
        return Codec(kind.parse_inside, lambda printer, value: value.print_inside(printer))
    return CODECS[kind]


def _is_record(kind: object) -> TypeIs[type["Record"]]:
    return isinstance(kind, type) and issubclass(kind, Record)


def _bracketed(kind: type["Record"]) -> Codec:
    """Return the codec of a record among others: `[<..>, <..>]`."""
    return Codec(
        lambda parser: kind.new(kind.parse_parameters(parser)),
        lambda printer, value: value.print_parameters(printer),
    )


class _Clause(NamedTuple):
    """Texts and fields that stand together: texts at even places, fields at odd ones."""

    parts: Sequence[str]
    words: Sequence[str]
    """Words, punctuation and fields in braces, as they are read."""
    flag: str | None
    """The field of type `bool` that says whether the clause is there."""
    defaults: Mapping[str, Any] | None
    """Values of fields for which the clause is left out; None for a clause that is always there."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record(ParametrizedAttribute):
    """An attribute whose fields are Python values; see the module."""

    codecs: ClassVar[Mapping[str, Codec]] = {}
    _clauses: ClassVar[Sequence[_Clause]] = ()

    def __init_subclass__(cls, text: str, **rest: object) -> None:
        super().__init_subclass__(**rest)
        # equality and hash follow from the keys of the fields
        runtime_final(dataclass(frozen=True, eq=False)(cls))
        hints, known = type_hints(cls, include_extras=True), fields(cls)
        cls.codecs = {one.name: codec_of(hints[one.name]) for one in known}
        defaults = {one.name: one.default_factory() for one in known if one.default_factory is not MISSING}
        defaults |= {one.name: one.default for one in known if one.default is not MISSING}
        clauses: list[_Clause] = []
        for optional, always in re.findall(r"\[([^\]]*)\]|([^\[]+)", text):
            names = re.findall(r"{(\w+)}", optional)
            flag = next((name for name in names if hints[name] is bool), None)
            clause = optional.replace(f"{{{flag}}}", str(flag)) or always
            parts, words = re.split(r"{(\w+)}", clause), re.findall(r"{\w+}|\w+|[^\w\s]", clause)
            clauses.append(_Clause(parts, words, flag, {name: defaults[name] for name in names} if optional else None))
        cls._clauses = clauses

    def __post_init__(self) -> None:
        for name, codec in self.codecs.items():
            object.__setattr__(self, name, codec.convert(getattr(self, name)))
        # without `super()`: there are no parameters whose constraints could be verified
        self.verify()

    @property
    def key(self) -> Hashable:
        """The values by which two attributes of a class are compared."""
        return tuple(codec.key(getattr(self, name)) for name, codec in self.codecs.items())

    @override
    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Record) and self.name == other.name and self.key == other.key)

    @override
    def __hash__(self) -> int:
        return hash((self.name, self.key))

    @property
    @override
    def parameters(self) -> tuple[Attribute, ...]:
        return ()

    @classmethod
    @override
    def new(cls, params: Sequence[Any]) -> Self:
        (read,) = params
        return read

    @classmethod
    @override
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Any]:
        with parser.in_angle_brackets():
            return [cls.parse_inside(parser)]

    @override
    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            self.print_inside(printer)

    @classmethod
    def parse_inside(cls, parser: AttrParser) -> Self:
        """Parse what stands between the angle brackets."""
        values: dict[str, Any] = {}
        # a comma may belong to any of the optional clauses that begin with one
        has_comma = False
        for clause in cls._clauses:
            words = list(clause.words)
            if clause.defaults is not None:
                if words[0] == ",":
                    has_comma = has_comma or parser.parse_optional_punctuation(",") is not None
                    del words[0]
                    if not has_comma:
                        continue
                if parser.parse_optional_keyword(words.pop(0)) is None:
                    continue
                has_comma = False
                values |= {} if clause.flag is None else {clause.flag: True}
            for word in words:
                if word.startswith("{"):
                    values[word[1:-1]] = cls.codecs[word[1:-1]].parse(parser)
                elif word.isidentifier():
                    parser.parse_keyword(word)
                else:
                    parser.parse_punctuation(cast("PunctuationSpelling", word))
        if has_comma:
            parser.raise_error(f"expected one of {', '.join(one.words[1] for one in cls._clauses if one.defaults)}")
        return cls(**values)

    def print_inside(self, printer: Printer) -> None:
        """Print what stands between the angle brackets."""
        for clause in self._clauses:
            defaults = clause.defaults
            if defaults is not None and all(getattr(self, name) == value for name, value in defaults.items()):
                continue
            for place, part in enumerate(clause.parts):
                if place % 2:
                    self.codecs[part].print(printer, getattr(self, part))
                else:
                    printer.print_string(part)
