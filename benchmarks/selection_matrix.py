"""A small file of what recordings say: the time of every configuration at every size, for selection to be judged by without the recordings.

    python benchmarks/selection_matrix.py RECORDING... --out tests/data/held_out_h200.json.xz

A recording is a database, or one of the compressed ones that benchmarks/record_device.py leaves. Kept are the sizes that
`selection_sizes` holds out, which nothing is ever trained on. Times are medians of a trial's most careful rounds, to four digits.
"""

import json
import lzma
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune import source
from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.device import Device
from autotune.errors import UsageError
from autotune.operation import Operation
from autotune.problem import Problem
from benchmarks.recording import opened
from benchmarks.selection_sizes import held_out
from benchmarks.starting import started

DIGITS = 4

Times = Mapping[Problem, Mapping[Configuration, float]]


@dataclass(frozen=True)
class HeldOut:
    """Times in microseconds of one device, with the hash of each version's template that they are of."""

    operation: str
    device: Device
    templates: Mapping[str, str]
    times: Times

    @property
    def current(self) -> bool:
        """Whether the kernels that were timed are those that are here."""
        here = {name: template.sha for name, template in source.templates(load(self.operation))}
        return all(here.get(version) == sha for version, sha in self.templates.items())


def measured(paths: Iterable[Path], operation: Operation) -> HeldOut:
    """What recordings hold of the sizes that are never tuned; of a pair that several have, the first. Raises UsageError without any."""
    unseen = {size for sizes in held_out().values() for size in sizes}
    here = {name: template.sha for name, template in source.templates(operation)}
    devices: set[Device] = set()
    times: dict[Problem, dict[Configuration, float]] = {}
    for path in paths:
        with opened(path) as plain, Database(plain, mode="read") as database:
            for device in database.devices_measured():
                timing = max((t for t in database.protocols_measured(device) if t.name != "warm"), key=lambda t: t.rule)
                for problem in database.problems_measured(operation.name, device, timing):
                    if (problem.rows, problem.cols) not in unseen or not problem.packed:
                        continue
                    devices.add(device)
                    for trial in database.trials(device, timing, problem):
                        if trial.outcome.timed and here.get(trial.configuration.version) == trial.template_sha:
                            times.setdefault(problem, {}).setdefault(trial.configuration, _rounded(trial.time_us or 0.0))
    if len(devices) != 1:
        raise UsageError(f"times of one device are wanted, and these recordings have some of {len(devices)} at sizes that are held out")
    versions = sorted({configuration.version for known in times.values() for configuration in known})
    return HeldOut(operation.name, devices.pop(), {version: here[version] for version in versions}, times)


def write(matrix: HeldOut, path: Path) -> None:
    """As JSON: each configuration once, and for each size and element type pairs of its number and its time."""
    known = sorted({configuration for here in matrix.times.values() for configuration in here})
    number = {configuration: place for place, configuration in enumerate(known)}
    ordered = sorted(matrix.times, key=lambda p: (p.dtype, p.cols, p.rows))
    body = {
        "operation": matrix.operation,
        "device": asdict(matrix.device),
        "templates": dict(matrix.templates),
        "configurations": [[configuration.version, configuration.to_json()] for configuration in known],
        "problems": [[p.dtype, p.rows, p.cols, [[number[c], time_us] for c, time_us in sorted(matrix.times[p].items())]] for p in ordered],
    }
    path.write_bytes(lzma.compress(json.dumps(body, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME))


def read(path: Path) -> HeldOut:
    """What `write` wrote."""
    body = json.loads(lzma.decompress(path.read_bytes()))
    device = Device(**{**body["device"], "compute_capability": tuple(body["device"]["compute_capability"])})
    known = [Configuration.from_json(version, parameters) for version, parameters in body["configurations"]]
    times = {
        Problem(body["operation"], rows, cols, dtype): {known[place]: time_us for place, time_us in here}
        for dtype, rows, cols, here in body["problems"]
    }
    return HeldOut(body["operation"], device, body["templates"], times)


def _rounded(time_us: float) -> float:
    return float(f"{time_us:.{DIGITS}g}")


@click.command()
@click.argument("recordings", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--operation", "name", default="softmax", show_default=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
def main(recordings: tuple[Path, ...], name: str, out: Path) -> None:
    """Write what RECORDINGS hold of the sizes that are never tuned to OUT."""
    matrix = measured(recordings, load(name))
    write(matrix, out)
    trials = sum(map(len, matrix.times.values()))
    click.echo(f"{out}: {len(matrix.times)} problems, {trials} times, {out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    started(main)
