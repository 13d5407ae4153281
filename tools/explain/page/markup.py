"""Pieces of HTML and the numbers in them: sections, tables, cards."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple


def section(anchor: str, title: str, note: str, content: str) -> str:
    """Return a section that can be linked to; the note is plain text."""
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    head = f'<h2 id="{anchor}-title">{escape(title)}</h2>'
    return f'<section id="{anchor}" aria-labelledby="{anchor}-title">{head}{said}{content}</section>'


class Row(NamedTuple):
    """A row of a table: its class in the style sheet and its cells, in text."""

    style: str
    cells: Sequence[str]


class Column(NamedTuple):
    """A column: its header, and whether it holds a `number`, a `word`, or `text` of several lines."""

    header: str
    kind: str = "number"


def table(caption: str, columns: Sequence[Column], rows: Iterable[Row]) -> str:
    """Return a table that scrolls where there is no room, by keyboard too; the first cell heads its row."""
    heads = "".join(f'<th scope="col" class="{kind}">{escape(header)}</th>' for header, kind in columns)
    body = "".join(_row(columns, row) for row in rows)
    # on a phone text of several lines is read from top to bottom
    stacked = ' class="stack"' if any(kind == "text" for _, kind in columns) else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table{stacked}>'
        f"<caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(columns: Sequence[Column], row: Row) -> str:
    cells: list[str] = []
    for place, (cell, column) in enumerate(zip(row.cells, columns, strict=True)):
        tag = 'th scope="row"' if place == 0 else "td"
        label = f' data-label="{escape(column.header)}"' if place else ""
        cells.append(f'<{tag} class="{column.kind}"{label}>{escape(cell)}</{tag[:2]}>')
    return f'<tr class="{row.style}">{"".join(cells)}</tr>'


class Card(NamedTuple):
    """A number in the page's head: title, value, and explanation."""

    title: str
    number: str
    words: str


def cards(shown: Iterable[Card]) -> str:
    """Return cards side by side."""
    listed = (
        f"<div><dt>{escape(card.title)}</dt><dd><b>{escape(card.number)}</b>{escape(card.words)}</dd></div>"
        for card in shown
    )
    return f"<dl>{''.join(listed)}</dl>"


def byte_text(count: float) -> str:
    """Return bytes as a person writes them: 296 B, 18.9 KB, 4.51 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= 0.9995 * size:
            return f"{_three_digits(count / size)} {unit}"
    return f"{count:.0f} B"


def time_text(microseconds: float) -> str:
    """Return a time as a person writes it: 0.35 us, 78.1 us, 1.65 ms."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= 0.9995 * size:
            return f"{_three_digits(microseconds / size)} {unit}"
    return f"{_three_digits(microseconds)} µs"


def count_text(number: float) -> str:
    """Return a count as a person writes it: 512, 26.8k, 3.92M."""
    for letter, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if number >= size:
            return f"{_three_digits(number / (1e3 if letter == 'k' else size))}{letter}"
    return f"{number:,.0f}"


def ratio_text(ratio: float) -> str:
    """Return how many times as fast something is."""
    return f"{ratio:.0f}x" if ratio >= 99.5 else f"{ratio:.3g}x" if ratio >= 10 else f"{ratio:.1f}x"


def _three_digits(number: float) -> str:
    return f"{number:.0f}" if number >= 99.95 else f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"
