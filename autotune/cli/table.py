"""A table as lines of text: whole where there is room for it, else folded, shortened or one record a block, but always readable.

What is done for want of room, in this order: headings take two lines; what is the same in every row is said once, above; a few rows become
a block each; long texts are wrapped in their columns; long texts go below their row, and the less important columns are left out, which the
last line says. Where even the important ones have no room, every row becomes a block. Words are never broken.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from rich.cells import cell_len

Row = dict[str, Any]
Style = Literal["", "bold", "dim"]

GAP = 2  # blanks between columns
INDENT = 2  # of what stands below its row
LEAST_WRAPPED = 24  # a column narrower than this breaks text into scraps
FEW = 3  # so many rows are told apart more easily as blocks than shortened
FIXED_SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: the row's keys, its heading with its unit, and how values read of which the first is not None.

    `long` texts may be wrapped, and with `phrases` at their commas alone; `shared` ones may be said once for all rows where they are the
    same; the highest `rank` is left out first where there is no room, and 0 never. Below its row a text begins with its heading if `named`.
    `meaning` is what a heading leaves open, as the end of a sentence that begins with it.
    """

    key: str | tuple[str, ...]
    heading: str
    shown: Callable[..., Any] = str
    right: bool = True
    rank: int = 0
    long: bool = False
    phrases: bool = False
    shared: bool = False
    named: bool = True
    meaning: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if isinstance(self.key, str) else self.key

    def cell(self, row: Row) -> str:
        """The text for `row`, on one line and without characters that a terminal would obey."""
        first, *others = self.keys
        if row.get(first) is None:
            return ""
        said = str(self.shown(row[first], *(row.get(key) for key in others)))
        return " ".join("".join(letter if letter.isprintable() else " " for letter in said).split())


@dataclass(frozen=True, slots=True)
class Line:
    """One line, without its end, and how it looks on a terminal."""

    text: str
    style: Style = ""


@dataclass(frozen=True, slots=True)
class _Filled:
    """A column and its cells, `width` wide."""

    column: Column
    cells: Sequence[str]
    width: int

    @classmethod
    def of(cls, column: Column, cells: Sequence[str], *, narrow: bool = False) -> "_Filled":
        words = column.heading.split() if narrow else [column.heading]
        return cls(column, cells, max(map(cell_len, [*words, *cells])))

    def narrowed(self) -> "_Filled":
        return _Filled.of(self.column, self.cells, narrow=True)


def lines(rows: Sequence[Row], columns: Sequence[Column], width: int | None = None) -> list[Line]:
    """The table of `rows`, at most `width` columns of a terminal wide where words allow it; without a width, one line a row, uncut.

    Columns with nothing in them are left out.
    """
    filled = [_Filled.of(column, cells) for column in columns if any(cells := [column.cell(row) for row in rows])]
    if width is None or _needed(filled) <= width:
        return list(_whole(filled))
    filled = [one.narrowed() for one in filled]
    if _needed(filled) <= width:
        return list(_whole(_relaxed(filled, width)))
    above, filled = _shared(filled, width)
    if _needed(filled) <= width:
        return [*above, *_whole(_relaxed(filled, width))]
    kept, left_out = _shortened([one for one in filled if not one.column.long], width)
    if len(rows) <= FEW or _needed(kept) > width or not kept:
        return [*above, *_blocks(filled, width)]
    below = [one for one in filled if one.column.long]
    folded = [*_folded(_relaxed(kept, width), below, width), *_note(left_out, width)]
    wrapped = list(_whole(_relaxed(_wrapped(filled, width), width)))
    return [*above, *(wrapped if wrapped and (left_out or len(wrapped) <= len(folded)) else folded)]


def wrap(text: str, width: int, *, phrases: bool = False) -> list[str]:
    """`text` in lines of at most `width`, broken at blanks, or with `phrases` at blanks after a comma; longer words stay whole."""
    if text.isprintable() and cell_len(text) <= width:  # textwrap counts characters, of which some take no room
        return [text]
    tied = text.replace(" ", FIXED_SPACE).replace(f",{FIXED_SPACE}", ", ") if phrases else text
    found = textwrap.wrap(tied, max(width, 1), break_long_words=False, break_on_hyphens=False)
    return [line.replace(FIXED_SPACE, " ") for line in found] or [""]


def _needed(filled: Sequence[_Filled]) -> int:
    return sum(one.width for one in filled) + GAP * (len(filled) - 1)


def _shared(filled: Sequence[_Filled], width: int) -> tuple[list[Line], list[_Filled]]:
    """The line that says what all rows have in common, and the columns that are left."""
    common = [one for one in filled if one.column.shared and len(set(one.cells)) == 1]
    said = wrap(", ".join(one.cells[0] for one in common), width)
    return [Line(line, "bold") for line in said if common], [one for one in filled if one not in common]


def _wrapped(filled: Sequence[_Filled], width: int) -> list[_Filled]:
    """The columns with the long ones as narrow as needed; nothing when one would be narrower than is readable."""
    long = [one for one in filled if one.column.long]
    room = width - _needed([one for one in filled if not one.column.long]) - GAP * len(long)
    widths = {}
    for left, one in zip(range(len(long), 0, -1), sorted(long, key=lambda one: one.width), strict=True):
        widths[id(one)] = min(one.width, room // left)
        room -= widths[id(one)]
    if any(widths[id(one)] < min(one.width, LEAST_WRAPPED) for one in long):
        return []
    return [_Filled(one.column, one.cells, widths.get(id(one), one.width)) for one in filled]


def _relaxed(filled: Sequence[_Filled], width: int) -> list[_Filled]:
    """The columns with as many headings on one line as there is room for."""
    room, found = width - _needed(filled), []
    for one in filled:
        more = max(0, cell_len(one.column.heading) - one.width)
        found.append(_Filled(one.column, one.cells, one.width + (more if more <= room else 0)))
        room -= more if more <= room else 0
    return found


def _shortened(filled: Sequence[_Filled], width: int) -> tuple[list[_Filled], list[_Filled]]:
    """The columns that fit and those that are left out for them, the highest ranks first."""
    kept, left_out = list(filled), list[_Filled]()
    while _needed(kept) > width and (least := max((one.column.rank for one in kept), default=0)):
        gone = next(one for one in reversed(kept) if one.column.rank == least)
        kept.remove(gone)
        left_out.insert(0, gone)
    return kept, left_out


def _whole(filled: Sequence[_Filled]) -> Iterator[Line]:
    if not filled:
        return
    yield from _head(filled)
    for cells in zip(*(one.cells for one in filled), strict=True):
        yield from _row(filled, cells)


def _folded(filled: Sequence[_Filled], below: Sequence[_Filled], width: int) -> Iterator[Line]:
    """The rows, and below each its long texts."""
    yield from _head(filled)
    for place, cells in enumerate(zip(*(one.cells for one in filled), strict=True)):
        yield from _row(filled, cells)
        for one in below:
            if text := one.cells[place]:
                said = f"{one.column.heading}: {text}" if one.column.named else text
                for line in wrap(said, width - INDENT, phrases=one.column.phrases):
                    yield Line(" " * INDENT + line)


def _blocks(filled: Sequence[_Filled], width: int) -> Iterator[Line]:
    """Each row as a block of lines `heading  text`."""
    side = max(cell_len(one.column.heading) for one in filled)
    for place in range(len(filled[0].cells)):
        if place:
            yield Line("")
        for one in filled:
            if text := one.cells[place]:
                heading = one.column.heading
                for line in wrap(text, width - side - GAP, phrases=one.column.phrases):
                    yield Line(f"{heading:{side}}{' ' * GAP}{line}".rstrip())
                    heading = ""


def _head(filled: Sequence[_Filled]) -> Iterator[Line]:
    headings = [wrap(one.column.heading, one.width) for one in filled]
    tallest = max(map(len, headings))
    padded = [[""] * (tallest - len(heading)) + heading for heading in headings]
    for cells in zip(*padded, strict=True):
        yield Line(_line(filled, cells), "bold")
    yield Line("─" * _needed(filled), "dim")


def _row(filled: Sequence[_Filled], cells: Sequence[str]) -> Iterator[Line]:
    wrapped = [
        wrap(cell, one.width, phrases=one.column.phrases) if one.column.long else [cell] for one, cell in zip(filled, cells, strict=True)
    ]
    for parts in zip_longest(*wrapped, fillvalue=""):
        yield Line(_line(filled, parts))


def _line(filled: Sequence[_Filled], cells: Sequence[str]) -> str:
    def padded(one: _Filled, cell: str) -> str:
        blanks = " " * (one.width - cell_len(cell))
        return blanks + cell if one.column.right else cell + blanks

    return (" " * GAP).join(padded(one, cell) for one, cell in zip(filled, cells, strict=True)).rstrip()


def _note(left_out: Sequence[_Filled], width: int) -> list[Line]:
    if not left_out:
        return []
    names = ", ".join(one.column.heading for one in left_out)
    return [Line(line, "dim") for line in wrap(f"left out here: {names}; a wider terminal, a pipe, --csv and --json show all", width)]
