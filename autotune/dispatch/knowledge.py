"""What the databases say about one operation, read once and kept in memory: best kernels, pins, blocks and where binaries lie.

A dispatcher works where nothing but a driver is installed. A file that is damaged, foreign or newer costs one warning and is empty, or
as what it said when it was read before.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from autotune.configuration import Configuration
from autotune.device import Device
from autotune.dispatch.store import Layer, StoredInstance
from autotune.dispatch.testimony import Pin, Testimony, Witness, devices
from autotune.dispatch.tuned import MOST_OTHERS, Block, Tuned, usable
from autotune.operation import Operation
from autotune.selector.model import Model

__all__ = ["Knowledge", "Pin", "Tuned", "devices", "read"]

Key = tuple[Configuration, str]  # a configuration and the dtype it is compiled for


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All that is known about an operation for one device. `tuned` holds this device's sizes, `similar` those of other GPUs.

    `models` are the trained selectors, of this device and of others, by the device's name and the dtype, and `sources` their files.
    `testimonies` are what each file said.
    """

    tuned: tuple[Tuned, ...] = ()
    similar: tuple[tuple[Device, tuple[Tuned, ...]], ...] = ()
    pins: tuple[Pin, ...] = ()
    blocked: Mapping[Block, str] = field(default_factory=dict)
    instances: Mapping[Key, StoredInstance] | None = None
    layers: tuple[Layer, ...] = ()
    models: Mapping[tuple[str, str], Model] = field(default_factory=dict)
    sources: Mapping[tuple[str, str], Path] = field(default_factory=dict)
    testimonies: Mapping[Path, Testimony] = field(default_factory=dict)


def read(layers: Iterable[Layer], operation: Operation, device: Device, before: Knowledge | None = None) -> Knowledge:
    """What `layers` know about `operation` on `device`; where two speak of the same size, the first that measured is believed.

    Rows whose template is not the one that is here are left out, as are rows and files that cannot be read; what is left out of a file is
    one warning. A file that could be read when `before` was, and cannot any more, counts as it did then.
    """
    layers = tuple(layers)
    witness = Witness(operation, device)
    gathered = _Gathered(operation, device)
    for layer in layers:
        known = before.testimonies.get(layer.path) if before else None
        gathered.add(witness.ask(layer, known), layer)
        for complaint in witness.complaints:
            warnings.warn(complaint, RuntimeWarning, stacklevel=2)
    return gathered.knowledge(layers)


class _Gathered:
    """What several layers say, the first to say something winning; but what was measured wins over what was replayed."""

    def __init__(self, operation: Operation, device: Device) -> None:
        self.operation = operation
        self.device = device
        self.devices: dict[str, Device] = {}
        self.tuned: dict[tuple[object, ...], Tuned] = {}
        self.pins: list[Pin] = []
        self.blocked: dict[Block, str] = {}
        self.instances: dict[Key, StoredInstance] = {}
        self.models: dict[tuple[str, str], Model] = {}
        self.sources: dict[tuple[str, str], Path] = {}
        self.testimonies: dict[Path, Testimony] = {}

    def add(self, said: Testimony, layer: Layer) -> None:
        self.testimonies[layer.path] = said
        for entry in said.tuned:
            size = entry[: Tuned._fields.index("configuration")]
            if self.tuned.setdefault(size, entry).replayed and not entry.replayed:
                self.tuned[size] = entry
        for instance in said.instances:
            present = self.instances.setdefault((instance.configuration, instance.dtype), instance)
            if present.kind == "ptx" and instance.kind == "cubin":
                self.instances[instance.configuration, instance.dtype] = instance
        for device in said.devices:
            self.devices.setdefault(device.name, device)
        self.pins += said.pins
        self.blocked.update(said.blocked)
        for whose, model in said.models:
            self.models.setdefault(whose, model)
            self.sources.setdefault(whose, layer.path)

    def knowledge(self, layers: tuple[Layer, ...]) -> Knowledge:
        entries: dict[str, list[Tuned]] = {}
        stored = None if self.device.is_emulator else self.instances
        for entry in self.tuned.values():
            if entry.others:
                beside = usable(entry, self.operation, self.device, self.blocked, stored)
                entry = entry._replace(others=tuple(islice(beside, MOST_OTHERS)))
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
            testimonies=self.testimonies,
        )
