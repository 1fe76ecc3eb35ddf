"""What one database file says about one operation, each row checked before it is believed.

Only the standard library's SQLite is used, and only to read. Files are edited by hand, copied while they are written and kept on bad disks:
a row that says nothing sensible is left out by itself, and so is a question that the file cannot answer, with one warning for the file.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from autotune import source
from autotune.configuration import Configuration
from autotune.database.credible import (
    STATES,
    date,
    device_of,
    dtype_name,
    matrix,
    texts,
    time_of_a_kernel,
    whole_numbers,
)
from autotune.device import Device
from autotune.dispatch.questions import BEST, BLOCKED, DEVICES, INSTANCES, NONSENSE, PINS, SELECTORS, Row, check_schema, fetched
from autotune.dispatch.store import Layer, StoredInstance, connect, runs_on
from autotune.dispatch.tuned import Block, Tuned, with_others
from autotune.element import ELEMENTS
from autotune.errors import AutotuneError, shortened
from autotune.operation import Operation
from autotune.problem import MOST_ELEMENTS
from autotune.selector.model import Model

MOST_SAID = 200  # characters of what is wrong with a row

Found = TypeVar("Found")

_KINDS = (str, str, *[int] * 7, str, int, str, str, str, float, str, str, int, int)  # of the columns of a row of BEST after its id


@dataclass(frozen=True, slots=True)
class Pin:
    """A person's decision: the configuration to use for every size in a range, bounds included."""

    dtype: str
    least_rows: int
    most_rows: int
    least_cols: int
    most_cols: int
    configuration: Configuration
    author: str
    why: str
    path: Path | None = None  # the file that says so

    def covers(self, dtype: str, rows: int, cols: int) -> bool:
        return self.dtype == dtype and self.least_rows <= rows <= self.most_rows and self.least_cols <= cols <= self.most_cols


@dataclass(frozen=True, slots=True)
class Testimony:
    """What one file says. Of two entries about the same size in `tuned`, and of two `models`, the first one counts."""

    tuned: tuple[Tuned, ...] = ()
    instances: tuple[StoredInstance, ...] = ()
    devices: tuple[Device, ...] = ()
    pins: tuple[Pin, ...] = ()
    blocked: tuple[tuple[Block, str], ...] = ()
    models: tuple[tuple[tuple[str, str], Model], ...] = ()


class Witness:
    """Asks files about one operation on one device. `complaints` is what is to be said of the file that was asked last."""

    def __init__(self, operation: Operation, device: Device) -> None:
        self.operation = operation
        self.device = device
        self.complaints: list[str] = []
        self._bad: list[str] = []
        self._shas: dict[str, str] = {}
        self._configurations: dict[tuple[str, str], Configuration | None] = {}

    def ask(self, layer: Layer, before: Testimony | None = None) -> Testimony:
        """What the file of `layer` says; to what it cannot answer any more, the answer that it gave `before`."""
        self.complaints, self._bad = [], []
        kept = "is left out" if before is None else "counts as it was read before"
        before = before or Testimony()
        try:
            with closing(connect(layer)) as connection:
                check_schema(connection)
                connection.execute("BEGIN")  # one snapshot for all the questions
                found, failed = self._answers(connection, layer, before)
        except (*NONSENSE, OSError) as error:
            self.complaints.append(f"database {layer.path} cannot be read and {kept}: {error}")
            return before
        if failed:
            self.complaints.append(f"database {layer.path} can be read only in part, and the rest {kept}: {failed[0]}")
        if self._bad:
            one, first = len(self._bad) == 1, self._bad[0]
            left = f"is left out: {first}" if one else f"are left out: the first is {first}"
            self.complaints.append(f"{len(self._bad)} row{'s' * (not one)} of database {layer.path} cannot be used and {left}")
        return found

    def _answers(self, connection: sqlite3.Connection, layer: Layer, before: Testimony) -> tuple[Testimony, list[str]]:
        """The answers to all questions, and what the file said to those that it could not answer."""
        questions: dict[str, Callable[[sqlite3.Connection, Layer], Iterator[Any]]] = {
            "tuned": self._tuned,
            "instances": self._instances,
            "devices": self._devices,
            "pins": self._pins,
            "blocked": self._blocked,
            "models": self._models,
        }
        answers: dict[str, tuple[Any, ...]] = {}
        failed: list[str] = []
        for name, question in questions.items():
            try:
                answers[name] = tuple(question(connection, layer))
            except sqlite3.Error as error:
                answers[name] = getattr(before, name)
                failed.append(str(error))
        if len(failed) == len(questions):
            raise ValueError(failed[0])
        return Testimony(**answers), failed

    def _each(self, table: str, rows: list[Row], entry: Callable[..., Found | None]) -> Iterator[Found]:
        """What `entry` makes of each row; its id comes first. None is a row that does not concern us, an exception one that is bad."""
        for columns in rows:
            try:
                found = entry(*columns[1:])
            except NONSENSE as error:
                said = shortened(" ".join(f"{type(error).__name__}: {error}".split()), MOST_SAID)
                self._bad.append(f"row {columns[0]!r} of {table} ({said})")
            else:
                if found is not None:
                    yield found

    def _tuned(self, connection: sqlite3.Connection, layer: Layer) -> Iterator[Tuned]:
        rows = self._each("best", fetched(connection, BEST, self.operation.name), partial(self._best, layer))
        ranked = sorted(rows, key=lambda found: found[:2])
        # What is shipped was made with the definitions that are shipped, and is too long to ask it of each row.
        wanted = {} if layer.immutable else {row: tuned for *_, row, stands, tuned in ranked if not stands and self._here(tuned.device)}
        others = with_others(connection, wanted, self._current, self._configuration)
        for *_, row, stands, tuned in ranked:
            tuned = others.get(row, tuned)
            leading = tuned if stands is not None else tuned.led_by_others()
            if leading is not None:
                yield leading
        stale = sum(stands is None and tuned.state != "blocked" and self._mine(tuned) for *_, stands, tuned in ranked)
        if stale:
            sizes, are = ("the best of 1 tuned size", "is") if stale == 1 else (f"the best kernels of {stale} tuned sizes", "are")
            self.complaints.append(
                f"{sizes} in {layer.path} {are} left out, measured with other {self.operation.name} kernels than those here; "
                "run autotune sweep again"
            )

    def _best(self, layer: Layer, *columns: Any) -> tuple[bool, int, int, bool | None, Tuned]:
        """How a row of `best` ranks, its id, whether its configuration can be used at its size, and what it says.

        None in the place of the last but one where it must not be used anywhere: blocked, or of other kernels than those here.
        """
        device, dtype, *problem, protocol, rule, version, parameters, sha, time_us, state, origin, replayed, row = columns
        if tuple(map(type, columns)) != _KINDS:  # of the many rows that there may be, nearly all pass
            texts(device, protocol, version, parameters, sha, state, origin)
            whole_numbers(*problem, rule, row)
        time_of_a_kernel(time_us)
        if dtype not in ELEMENTS:
            raise ValueError(f"{dtype!r} is no dtype")
        matrix(*problem)
        if state not in STATES:
            raise ValueError(f"{state!r} is no state")
        chosen = self._configuration(version, parameters) if self._current(version) == sha else None
        *layout, in_place = problem
        named = chosen or Configuration(version, ())
        tuned = Tuned._make((device, dtype, *layout, bool(in_place), named, sha, time_us, state, origin, layer.path, (), bool(replayed)))
        ranks = (protocol == "warm", -rule, row)
        if chosen is None or state == "blocked":
            return *ranks, None, tuned
        asked = self._here(device) and not layer.immutable
        return *ranks, not asked or bool(self.operation.applicable(chosen, tuned.problem(self.operation), self.device)), tuned

    def _here(self, device: str) -> bool:
        return device == self.device.name

    def _mine(self, tuned: Tuned) -> bool:
        """Whether it is of this device, and of a version that is here: what is said of others is passed over."""
        return self._here(tuned.device) and tuned.configuration.version in self.operation.versions

    def _instances(self, connection: sqlite3.Connection, layer: Layer) -> Iterator[StoredInstance]:
        def entry(version: str, parameters: str, dtype: str, arch: str, sha: str, symbol: str, binary: str, kind: str) -> Any:
            texts(version, parameters, arch, sha, symbol, binary)
            dtype_name(dtype)
            if kind not in ("cubin", "ptx"):
                raise ValueError("its binary is missing" if kind is None else f"{kind!r} is no kind of binary")
            if not runs_on(kind, arch, self.device):
                return None
            configuration = self._configuration(version, parameters) if self._current(version) == sha else None
            if configuration is None:
                return None
            return StoredInstance(configuration, dtype, arch, kind, symbol, binary, layer)

        return self._each("instances", fetched(connection, INSTANCES, self.operation.name), entry)

    def _devices(self, connection: sqlite3.Connection, layer: Layer) -> Iterator[Device]:
        return self._each("devices", fetched(connection, DEVICES), device_of)

    def _pins(self, connection: sqlite3.Connection, layer: Layer) -> Iterator[Pin]:
        def entry(dtype: str, *columns: Any) -> Pin | None:
            *limits, created, version, parameters, author, why = columns
            texts(created, version, parameters, author, why)
            dtype_name(dtype)
            date(created)
            least_rows, most_rows, least_cols, most_cols = whole_numbers(*limits)
            if not (1 <= least_rows <= most_rows < MOST_ELEMENTS and 1 <= least_cols <= most_cols < MOST_ELEMENTS):
                raise ValueError("no matrix has such sizes")
            configuration = self._configuration(version, parameters)
            return (
                Pin(dtype, least_rows, most_rows, least_cols, most_cols, configuration, author, why, layer.path) if configuration else None
            )

        return self._each("pins", fetched(connection, PINS, self.operation.name, self.device.name), entry)

    def _blocked(self, connection: sqlite3.Connection, layer: Layer) -> Iterator[tuple[Block, str]]:
        def entry(version: str, parameters: str, dtype: str, sha: str, reason: str, problem: object, *size: Any) -> Any:
            texts(version, parameters, sha, reason)
            dtype_name(dtype)
            if problem is not None:
                whole_numbers(*size)
            configuration = self._configuration(version, parameters) if self._current(version) == sha else None
            if configuration is None:
                return None
            return (configuration, dtype, *size), reason

        return self._each("blocked", fetched(connection, BLOCKED, self.operation.name, self.device.name), entry)

    def _models(self, connection: sqlite3.Connection, layer: Layer) -> Iterator[tuple[tuple[str, str], Model]]:
        """The newest selector of each device and dtype that can be read."""
        known: set[tuple[str, str]] = set()

        def entry(device: str, dtype: str, body: str, created: str) -> tuple[tuple[str, str], Model] | None:
            texts(device, body, created)
            dtype_name(dtype)
            date(created)
            if (device, dtype) in known:
                return None
            try:
                model = Model.from_json(body, self.operation, self._current)
            except (AutotuneError, ArithmeticError) as error:
                self.complaints.append(
                    f"the selector for {dtype} on {device} in {layer.path} is left out: {error}; "
                    f"`autotune rebuild --db {quote(str(layer.path))}` makes it again"
                )
                return None
            known.add((device, dtype))
            return (device, dtype), model

        return self._each("selectors", fetched(connection, SELECTORS, self.operation.name), entry)

    def _current(self, version: str) -> str:
        if version not in self._shas:
            known = self.operation.versions.get(version)
            self._shas[version] = source.read(known).sha if known else ""
        return self._shas[version]

    def _configuration(self, version: str, parameters: str) -> Configuration | None:
        """The configuration that a row names; None when its version is not here or does not declare it."""
        key = (version, parameters)
        if key not in self._configurations:
            configuration = Configuration.from_json(version, parameters)
            known = self.operation.versions.get(version)
            self._configurations[key] = configuration if known and known.declares(configuration) else None
        return self._configurations[key]


def devices(connection: sqlite3.Connection) -> Iterator[Device]:
    """The devices that a database knows; rows that describe none are passed over."""
    for _, *columns in fetched(connection, DEVICES):
        with suppress(*NONSENSE):
            yield device_of(*columns)
