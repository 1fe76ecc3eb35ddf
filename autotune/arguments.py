"""What Python code passes to us, checked where it comes in: each mistake is a UsageError of one sentence that says what is accepted.

Whole numbers may be NumPy's. What is called `name` in a sentence is the argument as its caller knows it.
"""

import os
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from autotune.errors import UsageError, shown
from autotune.problem import MOST_ELEMENTS, too_large

T = TypeVar("T")

MOST_SEED = 2**32 - 1  # of what draws inputs and orders


def text(name: str, value: object, accepted: str) -> str:
    """`value` where it is text that a file can hold."""
    if not isinstance(value, str):
        raise refused(name, value, accepted)
    try:
        value.encode()
    except UnicodeEncodeError as error:  # half a character, from an argument that was not UTF-8
        raise refused(name, value, "give text in UTF-8") from error
    return value


def texts(name: str, value: Any, accepted: str) -> tuple[str, ...]:
    """Those of `value`, each once; a single text is none, for it would be taken letter by letter."""
    found = _several(name, value, accepted)
    if not all(isinstance(each, str) for each in found):
        raise refused(name, value, accepted)
    return tuple(dict.fromkeys(found))


def path(name: str, value: Any) -> Path:
    """`value` where it is a path that may exist."""
    try:
        written = os.fspath(value)
    except TypeError:
        written = b""
    if not isinstance(written, str) or not written or "\0" in written:
        raise refused(name, value, "give a path")
    return Path(written)


def kernels_folder(value: Any) -> Path | None:
    """The folder that `kernels` names, by its whole path; None where it is left out."""
    if value is None:
        return None
    folder = path("kernels", value)
    if not folder.is_dir():
        raise UsageError(f"the folder {str(folder)!r} of kernels does not exist; name one with operations of your own, or leave it out")
    return folder.resolve()


def whole(name: str, value: Any, least: int, most: int) -> int:
    """`value` where it is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        raise refused(name, value, f"give a whole number from {least} to {most}")
    return int(value)


def number(name: str, value: Any) -> float:
    """`value` where it is a real number, of which nothing else is asked here."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise refused(name, value, "give a number")
    return float(value)


def one_of(name: str, value: T, accepted: tuple[T, ...]) -> T:
    if value not in accepted:
        raise refused(name, value, f"give {' or '.join(map(repr, accepted))}")
    return value


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise refused(name, value, "give True or False")
    return value


def sizes(value: Any) -> list[tuple[int, int]]:
    """The (rows, columns) of problems that are to be tuned, each once."""
    accepted = "give pairs of rows and columns, such as [(4096, 4096)]"
    found = []
    for size in _several("sizes", value, accepted):
        if not (isinstance(size, tuple | list) and len(size) == 2 and all(map(_is_whole, size))):
            raise UsageError(f"size {shown(size)} is not a pair of whole numbers; {accepted}")
        rows, cols = int(size[0]), int(size[1])
        if min(rows, cols) < 1:
            raise UsageError(f"size {shown(size)} has nothing to tune; rows and columns are at least 1")
        if rows * cols >= MOST_ELEMENTS:
            raise too_large(shown(size))
        found.append((rows, cols))
    return list(dict.fromkeys(found))


def shapes(value: Any) -> list[tuple[int, ...]]:
    """Shapes of arrays, which may be empty but have an axis."""
    accepted = "give shapes of arrays, such as [(4096, 4096)]"
    found = _several("shapes", value, accepted)
    for shape in found:
        if not (isinstance(shape, tuple | list) and shape and all(_is_whole(part) and part >= 0 for part in shape)):
            raise UsageError(f"shape {shown(shape)} is none of an array with an axis; {accepted}")
    return [tuple(map(int, shape)) for shape in found]


def refused(name: str, value: object, accepted: str) -> UsageError:
    return UsageError(f"{name} is {shown(value)}; {accepted}")


def _several(name: str, value: Any, accepted: str) -> list[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise refused(name, value, accepted)
    return list(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
