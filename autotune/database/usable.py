"""Which of what was measured may run today: of a present template, declared, applicable, and not blocked."""

from collections.abc import Collection, Iterable, Mapping

from autotune.configuration import Configuration
from autotune.database.connection import Row
from autotune.database.keys import KERNEL_TUNER
from autotune.database.read import Reader, problem_of
from autotune.database.recall import Recaller
from autotune.database.rows import Inspector
from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import Problem

Templates = Mapping[str, Collection[str]]  # the hashes that count as present, by version

_SAME = ("operation", "dtype", "rows", "cols", "input_stride", "output_stride", "input_alignment", "output_alignment", "in_place")
_PLACE = (*_SAME, "device", "protocol", "protocol_rule", "version")


class Judge(Reader, Recaller, Inspector):
    """The part of a database that shows of each version what can be used."""

    def usable_per_version(
        self,
        operations: Mapping[str, tuple[Operation, Templates]],
        operation: str | None = None,
        rows: int | None = None,
        cols: int | None = None,
        dtype: str | None = None,
        device: str | None = None,
        version: str | None = None,
    ) -> list[Row]:
        """`best_per_version` without what must not be used today, by each operation and the templates that count as its own.

        The settled best has the time that it was settled with. Rows of operations that are not among `operations` stay.
        """
        wanted = {"operation": operation, "rows": rows, "cols": cols, "dtype": dtype, "device": device, "version": version}
        settled = {row["trial"]: row for row in self.best(operation, rows, cols, dtype, device)}
        usable = _Usable(self, operations)
        found = []
        for row in self.best_per_version(**wanted):  # type: ignore[arg-type]
            stands = row if usable(row) else next(filter(usable, self._others(row)), None)
            if stands is not None:
                timed = {name: settled[stands["trial"]][name] for name in ("time_us", "gb_per_s")} if stands["trial"] in settled else {}
                found.append(stands | timed | {"trials": row["trials"]})
        return found

    def _others(self, row: Row) -> Iterable[Row]:
        """What could stand for the version of `row` in its place, the first one first."""
        at = {name: row[name] for name in ("operation", "rows", "cols", "dtype", "device", "version")}
        return (other for other in self.best_per_version(**at, each=True) if all(other[name] == row[name] for name in _PLACE))


class _Usable:
    """Whether what a row names can be used at its problem and on its device; what is blocked is read once for each of these."""

    def __init__(self, database: Judge, operations: Mapping[str, tuple[Operation, Templates]]) -> None:
        self._database = database
        self._operations = operations
        self._devices = database.devices_measured()
        self._blocked: dict[tuple[Device, Problem], Collection[Configuration]] = {}

    def __call__(self, row: Row) -> bool:
        if row["operation"] not in self._operations or row["version"] == KERNEL_TUNER:
            return True
        operation, templates = self._operations[row["operation"]]
        if row["template_sha"] not in templates.get(row["version"], ()):
            return False
        configuration, problem = Configuration(row["version"], tuple(row["parameters"].items())), problem_of(row)
        devices = [device for device in self._devices if device.name == row["device"]]
        return not devices or any(
            any(operation.offered([configuration], problem, device))
            and configuration not in self._held(operation, templates, problem, device)
            for device in devices
        )

    def _held(self, operation: Operation, templates: Templates, problem: Problem, device: Device) -> Collection[Configuration]:
        key = (device, problem)
        if key not in self._blocked:
            shas = {sha for present in templates.values() for sha in present}
            self._blocked[key] = self._database.blocked(device, operation.name, problem.dtype, problem, template_shas=shas)
        return self._blocked[key]
