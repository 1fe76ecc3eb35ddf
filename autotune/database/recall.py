"""Reading back what a sweep goes on from: what was measured, on what, by which protocol, and what was settled."""

from collections.abc import Iterable

from autotune.configuration import Configuration
from autotune.database.connection import Connection, Row
from autotune.database.decide import Settled
from autotune.database.keys import device_key, problem_key
from autotune.database.read import problem_of
from autotune.database.sound import described, sound, without_id
from autotune.device import EMULATOR, Device
from autotune.problem import Problem
from autotune.source import Source
from autotune.trial import Environment, TimingProtocol


class Recaller(Connection):
    """The part of a database that a sweep, and the `recorded` backend, go on from."""

    def devices_measured(self) -> list[Device]:
        """The devices that have trials, in the order in which they first did."""
        rows = self.select("SELECT * FROM devices d WHERE EXISTS (SELECT 1 FROM runs u WHERE u.device = d.id) ORDER BY id")
        return sound(self, "devices", rows, described)

    def protocols_measured(self, device: Device) -> list[TimingProtocol]:
        """The protocols under which `device` has runs."""
        rows = self.select(
            "SELECT DISTINCT q.id, q.name, q.rule, q.description FROM runs u JOIN protocols q ON q.id = u.protocol "
            f"WHERE u.device = {_DEVICE}",
            tuple(device_key(device).values()),
        )
        return sound(self, "protocols", rows, lambda row: TimingProtocol(row["name"], row["rule"], row["description"]))

    def environment_of(self, device: Device, timing: TimingProtocol) -> Environment | None:
        """The software of the latest run on `device` under `timing`."""
        rows = self.select(
            "SELECT e.id, e.package, e.python, e.os, e.driver, e.cuda, e.compiler, e.pycuda "
            "FROM runs u JOIN environments e ON e.id = u.environment "
            f"WHERE u.device = {_DEVICE} AND u.protocol = {_PROTOCOL} ORDER BY u.id DESC LIMIT 1",
            (*device_key(device).values(), timing.name, timing.rule),
        )
        return next(iter(sound(self, "environments", rows, lambda row: Environment(**without_id(row)))), None)

    def problems_measured(self, operation: str, device: Device, timing: TimingProtocol) -> list[Problem]:
        """The problems of `operation` that were settled on `device` under `timing`, oldest first."""
        rows = self.select(
            f"SELECT p.* FROM best b JOIN problems p ON p.id = b.problem WHERE p.operation = ? AND b.device = {_DEVICE} "
            f"AND b.protocol = {_PROTOCOL} ORDER BY b.id",
            (operation, *device_key(device).values(), timing.name, timing.rule),
        )
        return sound(self, "problems", rows, problem_of)

    def templates_tried(self, operation: str) -> list[tuple[str, Source]]:
        """Every template of which there are trials of `operation`, with the name of the version whose configurations were tried."""
        rows = self.select(
            "SELECT DISTINCT s.id, c.version, s.text, s.sha FROM (SELECT DISTINCT configuration, template FROM trials "
            "WHERE problem IN (SELECT id FROM problems WHERE operation = ?)) t "
            "JOIN configurations c ON c.id = t.configuration JOIN templates s ON s.id = t.template ORDER BY s.id, c.version",
            (operation,),
        )
        return sound(self, "templates", rows, lambda row: (row["version"], Source(row["text"], row["sha"])))

    def copy_us(self, device: Device, timing: TimingProtocol, problem: Problem) -> float | None:
        """The latest time of a device copy of the problem's bytes, in microseconds."""
        rows = self.select(
            f"SELECT c.id, c.copy_us FROM copies c JOIN runs u ON u.id = c.run WHERE u.device = {_DEVICE} AND u.protocol = {_PROTOCOL} "
            f"AND c.problem = {_PROBLEM} ORDER BY c.id DESC",
            (*device_key(device).values(), timing.name, timing.rule, *problem_key(problem).values()),
        )
        return next(iter(sound(self, "copies", rows, lambda row: float(row["copy_us"]))), None)

    def settled(self, device: Device, timing: TimingProtocol, problem: Problem) -> Settled | None:
        """What was settled for `problem`, or None."""
        rows = self.select(
            "SELECT b.id, b.trial, b.time_us, b.ci_low_us, b.ci_high_us, b.spread, b.tried, b.state, b.runner_up_us, b.gap, "
            "b.beyond_noise, b.copy_us, b.space_sha, p.bytes_moved, c.version, c.parameters, w.version AS next_version, "
            "w.parameters AS next_parameters "
            "FROM best b JOIN problems p ON p.id = b.problem JOIN configurations c ON c.id = b.configuration "
            "LEFT JOIN configurations w ON w.id = b.runner_up "
            f"WHERE b.device = {_DEVICE} AND b.protocol = {_PROTOCOL} AND b.problem = {_PROBLEM}",
            (*device_key(device).values(), timing.name, timing.rule, *problem_key(problem).values()),
        )
        return next(iter(sound(self, "best", rows, _settled)), None)


def _id(table: str, columns: Iterable[str]) -> str:
    """The SQL for the id of the row of `table` with these columns."""
    return f"(SELECT id FROM {table} WHERE " + " AND ".join(f"{column} = ?" for column in columns) + ")"


_PROBLEM = _id("problems", problem_key(Problem("any", 1, 1)))
_PROTOCOL = _id("protocols", ("name", "rule"))
_DEVICE = _id("devices", device_key(EMULATOR))


def _settled(row: Row) -> Settled:
    following = row["next_version"]
    return Settled(
        configuration=Configuration.from_json(row["version"], row["parameters"]),
        trial_id=row["trial"],
        time_us=row["time_us"],
        ci_low_us=row["ci_low_us"],
        ci_high_us=row["ci_high_us"],
        spread=row["spread"],
        tried=row["tried"],
        bytes_moved=row["bytes_moved"],
        state=row["state"],
        runner_up=Configuration.from_json(following, row["next_parameters"]) if following else None,
        runner_up_us=row["runner_up_us"],
        gap=row["gap"],
        beyond_noise=bool(row["beyond_noise"]) if following else None,
        copy_us=row["copy_us"],
        space_sha=row["space_sha"],
    )
