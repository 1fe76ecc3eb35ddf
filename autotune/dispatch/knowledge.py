"""What the databases say about one operation, read once and kept in memory: best kernels, pins, blocks and where binaries lie.

Only the standard library's SQLite is used, and only to read: a dispatcher works where nothing but a driver is installed, and a file that is
damaged, foreign or newer costs one warning and counts as empty.
"""

import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from autotune import source
from autotune.configuration import Configuration
from autotune.device import Device
from autotune.dispatch.store import Layer, StoredInstance, connect, runs_on
from autotune.errors import AutotuneError
from autotune.operation import Operation
from autotune.selector.model import Model

Row = tuple[object, ...]
Key = tuple[Configuration, str]  # a configuration and the dtype it is compiled for


# The view `best_kernels` says the same and more, for which it looks up every best kernel's trial, run and environment: half as fast.
_BEST = """
SELECT d.name, p.dtype, p.rows, p.cols, p.input_stride, p.output_stride, p.input_alignment, p.output_alignment, p.in_place,
       q.name, q.rule, c.version, c.parameters, s.sha, b.time_us, b.state, b.origin
FROM best b
JOIN problems p ON p.id = b.problem
JOIN devices d ON d.id = b.device
JOIN protocols q ON q.id = b.protocol
JOIN configurations c ON c.id = b.configuration
JOIN templates s ON s.id = b.template
WHERE p.operation = ? AND b.state <> 'blocked'
"""
_PROTOCOL, _RULE = 9, 10


class Tuned(NamedTuple):
    """The best configuration for one size on one device, with its time in microseconds and the file that says so."""

    device: str
    dtype: str
    rows: int
    cols: int
    input_stride: int
    output_stride: int
    input_alignment: int
    output_alignment: int
    in_place: bool
    configuration: Configuration
    template_sha: str
    time_us: float
    state: str
    origin: str
    path: Path


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
class Knowledge:
    """All that is known about an operation for one device. `tuned` holds this device's sizes, `similar` those of other GPUs.

    `models` are the trained selectors, of this device and of others, by the device's name and the dtype, and `sources` their files.
    """

    tuned: tuple[Tuned, ...] = ()
    similar: tuple[tuple[Device, tuple[Tuned, ...]], ...] = ()
    pins: tuple[Pin, ...] = ()
    blocked: Mapping[tuple[Configuration, str, int | None, int | None], str] = field(default_factory=dict)
    instances: Mapping[Key, StoredInstance] | None = None
    layers: tuple[Layer, ...] = ()
    models: Mapping[tuple[str, str], Model] = field(default_factory=dict)
    sources: Mapping[tuple[str, str], Path] = field(default_factory=dict)


def read(layers: Iterable[Layer], operation: Operation, device: Device) -> Knowledge:
    """What `layers` know about `operation` on `device`; where two speak of the same size, the first one is believed.

    Rows whose template is not the one that is here are left out, as are files that cannot be read; each file warns once.
    """
    layers = tuple(layers)
    gathered = _Gathered(operation, device)
    for layer in layers:
        try:
            with closing(connect(layer)) as connection:
                gathered.add(connection, layer)
        except (sqlite3.Error, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            warnings.warn(f"database {layer.path} cannot be read and is left out: {error}", RuntimeWarning, stacklevel=2)
    return gathered.knowledge(layers)


class _Gathered:
    """Rows of several layers, the first to say something winning."""

    def __init__(self, operation: Operation, device: Device) -> None:
        self.operation = operation
        self.device = device
        self.devices: dict[str, Device] = {}
        self.tuned: dict[Row, Tuned] = {}
        self.pins: list[Pin] = []
        self.blocked: dict[tuple[Configuration, str, int | None, int | None], str] = {}
        self.instances: dict[Key, StoredInstance] = {}
        self.models: dict[tuple[str, str], Model] = {}
        self.sources: dict[tuple[str, str], Path] = {}
        self._shas: dict[str, str] = {}
        self._configurations: dict[tuple[str, str], Configuration | None] = {}

    def add(self, connection: sqlite3.Connection, layer: Layer) -> None:
        connection.execute("BEGIN")  # one snapshot for all the questions
        tuned = list(self._tuned(connection, layer))
        instances = list(self._instances(connection, layer))
        known = list(devices(connection))
        pins = list(self._pins(connection, layer))
        blocked = list(self._blocked(connection))
        models = list(self._models(connection, layer))
        for key, entry in tuned:
            self.tuned.setdefault(key, entry)
        for instance in instances:
            present = self.instances.setdefault((instance.configuration, instance.dtype), instance)
            if present.kind == "ptx" and instance.kind == "cubin":
                self.instances[instance.configuration, instance.dtype] = instance
        for device in known:
            self.devices.setdefault(device.name, device)
        self.pins += pins
        self.blocked.update(blocked)
        for whose, model in models:
            self.models.setdefault(whose, model)
            self.sources.setdefault(whose, layer.path)

    def knowledge(self, layers: tuple[Layer, ...]) -> Knowledge:
        entries: dict[str, list[Tuned]] = {}
        for entry in self.tuned.values():
            entries.setdefault(entry.device, []).append(entry)
        others = tuple(
            (device, tuple(entries[name]))
            for name, device in self.devices.items()
            if name in entries and name != self.device.name and not device.is_emulator
        )
        return Knowledge(
            tuned=tuple(entries.get(self.device.name, ())),
            similar=() if self.device.is_emulator else others,
            pins=tuple(self.pins),
            blocked=self.blocked,
            instances=None if self.device.is_emulator else self.instances,
            layers=layers,
            models={} if self.device.is_emulator else self.models,
            sources=self.sources,
        )

    def _tuned(self, connection: sqlite3.Connection, layer: Layer) -> Iterator[tuple[Row, Tuned]]:
        stale = 0
        rows = connection.execute(_BEST, (self.operation.name,)).fetchall()
        rows.sort(key=lambda row: (row[_PROTOCOL] == "warm", -row[_RULE]))
        for *problem, _, _, version, parameters, template_sha, time_us, state, origin in rows:
            chosen = self._configuration(version, parameters) if self._current(version) == template_sha else None
            if chosen is None:
                stale += problem[0] == self.device.name
                continue
            *layout, in_place = problem
            yield tuple(problem), Tuned._make((*layout, bool(in_place), chosen, template_sha, time_us, state, origin, layer.path))
        if stale:
            warnings.warn(
                f"{stale} tuned sizes in {layer.path} are of another state of the {self.operation.name} kernels and are left out;"
                " run `autotune sweep` again",
                RuntimeWarning,
                stacklevel=4,
            )

    def _instances(self, connection: sqlite3.Connection, layer: Layer) -> Iterator[StoredInstance]:
        rows = connection.execute(
            "SELECT version, parameters, dtype, arch, template_sha, symbol, binary_sha, kind FROM stored_instances WHERE operation = ?",
            (self.operation.name,),
        )
        for version, parameters, dtype, arch, template_sha, symbol, binary_sha, kind in rows:
            if self._current(version) != template_sha or not runs_on(kind, arch, self.device):
                continue
            if configuration := self._configuration(version, parameters):
                yield StoredInstance(configuration, dtype, arch, kind, symbol, binary_sha, layer)

    def _pins(self, connection: sqlite3.Connection, layer: Layer) -> Iterator[Pin]:
        rows = connection.execute(
            "SELECT dtype, least_rows, most_rows, least_cols, most_cols, version, parameters, author, why FROM pinned"
            " WHERE operation = ? AND device = ? ORDER BY created DESC",
            (self.operation.name, self.device.name),
        )
        for dtype, least_rows, most_rows, least_cols, most_cols, version, parameters, author, why in rows:
            if version in self.operation.versions and (configuration := self._configuration(version, parameters)):
                yield Pin(dtype, least_rows, most_rows, least_cols, most_cols, configuration, author, why, layer.path)

    def _blocked(self, connection: sqlite3.Connection) -> Iterator[tuple[tuple[Configuration, str, int | None, int | None], str]]:
        rows = connection.execute(
            "SELECT version, parameters, dtype, template_sha, rows, cols, reason FROM blocked_configurations"
            " WHERE operation = ? AND device = ?",
            (self.operation.name, self.device.name),
        )
        for version, parameters, dtype, template_sha, size_rows, size_cols, reason in rows:
            if self._current(version) == template_sha and (configuration := self._configuration(version, parameters)):
                yield (configuration, dtype, size_rows, size_cols), reason

    def _models(self, connection: sqlite3.Connection, layer: Layer) -> Iterator[tuple[tuple[str, str], Model]]:
        rows = connection.execute("SELECT device, dtype, body FROM active_selectors WHERE operation = ?", (self.operation.name,))
        for device, dtype, body in rows:
            try:
                yield (device, dtype), Model.from_json(body, self.operation, self._current)
            except AutotuneError as error:
                warnings.warn(
                    f"the selector for {dtype} on {device} in {layer.path} is left out: {error}; `autotune rebuild` makes it again",
                    RuntimeWarning,
                    stacklevel=4,
                )

    def _current(self, version: str) -> str:
        if version not in self._shas:
            known = self.operation.versions.get(version)
            self._shas[version] = source.read(known.template).sha if known else ""
        return self._shas[version]

    def _configuration(self, version: str, parameters: str) -> Configuration | None:
        """The configuration that a row names; None when its version does not declare it, since its functions could not be asked."""
        key = (version, parameters)
        if key not in self._configurations:
            configuration = Configuration.from_json(version, parameters)
            declared = self.operation.version(version).parameters
            names = tuple(name for name, _ in configuration.parameters)
            fits = names == tuple(declared) and all(value in declared[name] for name, value in configuration.parameters)
            self._configurations[key] = configuration if fits else None
        return self._configurations[key]


def devices(connection: sqlite3.Connection) -> Iterator[Device]:
    """The devices that a database knows."""
    rows = connection.execute(
        "SELECT name, compute_capability, sm_count, l2_bytes, bus_bits, shared_bytes_per_block, shared_bytes_per_sm, registers_per_sm,"
        " threads_per_sm, threads_per_block FROM devices"
    )
    for name, capability, *numbers in rows:
        major, minor = str(capability).split(".")
        yield Device(name, (int(major), int(minor)), *numbers)
