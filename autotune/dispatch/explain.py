"""Why a problem gets the kernel that it gets, told from the databases alone: no GPU is needed."""

import os
import sqlite3
import warnings
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from autotune.catalogue import load
from autotune.device import EMULATOR, Device
from autotune.dispatch.knowledge import devices, read
from autotune.dispatch.selection import Explanation, Selector
from autotune.dispatch.store import Layer, connect, layers
from autotune.errors import UsageError
from autotune.operation import Operation
from autotune.problem import Problem


def explain(
    problem: Problem,
    device: Device | str | None = None,
    *,
    db: str | os.PathLike[str] | None = None,
    kernels: str | os.PathLike[str] | None = None,
) -> Explanation:
    """The dispatcher's decision for `problem` on `device`: a `Device`, or the name of one in the databases, or else the first GPU in them.

    The first is one where sizes of this operation were tuned, if there is any; the emulator's decisions are told where no GPU is known.

    Raises UsageError for a name that no database knows, and when no database knows any device.
    """
    found = layers(db)
    operation = load(problem.operation, Path(kernels) if kernels else None)
    chosen = device if isinstance(device, Device) else _named(device, found, operation)
    return Selector(operation, chosen, read(found, operation, chosen)).explain(problem)


def _named(name: str | None, found: tuple[Layer, ...], operation: Operation) -> Device:
    known = {EMULATOR.name: EMULATOR} if name == EMULATOR.name else {}
    for layer in found:
        try:
            with closing(connect(layer)) as connection:
                known |= {device.name: device for device in devices(connection) if device.name not in known}
        except sqlite3.Error:
            continue  # `read` says so
    if name is None:
        if known:
            return _first(known.values(), found, operation)
        raise UsageError("no database knows a device yet; run autotune sweep or name one with --db")
    if name not in known:
        raise UsageError(f"device {name!r} is in no database; there are {', '.join(map(repr, known)) or 'none'}")
    return known[name]


def _first(known: Iterable[Device], found: tuple[Layer, ...], operation: Operation) -> Device:
    """A GPU's decisions are what is asked for, and the emulator's where it alone has tuned the operation, or is the only one."""
    ordered = sorted(known, key=lambda device: device.is_emulator)
    with warnings.catch_warnings(action="ignore"):  # what cannot be read is said once, of the device that is chosen
        return next((device for device in ordered if len(ordered) > 1 and read(found, operation, device).tuned), ordered[0])
