"""What a row of a database must say before it is believed, field by field. Each check raises ValueError or TypeError."""

import re
from typing import Any

from autotune.device import Device
from autotune.element import ELEMENTS
from autotune.problem import MOST_ELEMENTS
from autotune.trial import LEAST_TIME_US, MOST_TIME_US

ALIGNMENTS = (1, 2, 4, 8, 16)
STATES = ("provisional", "confirmed", "stale", "blocked")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")  # what a newer row is told by
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]")


def device_of(name: str, capability: str, *numbers: int) -> Device:
    """A device by the columns of its row. `numbers` are all 0 for one that is known by its name alone."""
    texts(name, capability)
    sm_count, *others = whole_numbers(*numbers)
    if not _CAPABILITY.fullmatch(capability) or min(numbers) < 0 or (sm_count < 1 and any(others)):
        raise ValueError("no device has such properties")
    major, minor = capability.split(".")
    return Device(name, (int(major), int(minor)), *numbers)


def texts(*values: object) -> None:
    if set(map(type, values)) != {str}:
        raise TypeError("a column holds no text, or names a row that is missing")


def whole_numbers(*values: Any) -> tuple[int, ...]:
    if set(map(type, values)) != {int}:
        raise TypeError("a column holds no whole number, or names a row that is missing")
    return values


def time_of_a_kernel(us: Any) -> None:
    if type(us) not in (float, int) or not LEAST_TIME_US <= us <= MOST_TIME_US:
        raise ValueError(f"{us!r} is no time that a kernel takes")


def dtype_name(name: object) -> None:
    if name not in ELEMENTS:
        raise ValueError(f"{name!r} is no dtype")


def date(text: str) -> None:
    if not _DATE.match(text):
        raise ValueError(f"{text!r} is no date")


def matrix(rows: int, cols: int, input_stride: int, output_stride: int, input_alignment: int, output_alignment: int, in_place: int) -> None:
    strides = (input_stride, output_stride)
    if not (rows >= 1 and 1 <= cols <= min(strides) and max(*strides, rows * cols) < MOST_ELEMENTS):
        raise ValueError("no matrix has such a size")
    if input_alignment not in ALIGNMENTS or output_alignment not in ALIGNMENTS or in_place not in (0, 1):
        raise ValueError("no matrix lies like that")
