"""Recorded spaces: every configuration of a kernel with its time on one problem, from files of several kinds."""

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.configuration import Configuration, Value

Floats = NDArray[np.float64]
COVERED = 0.95  # the budget ends where random has come this share of the way from the median to the optimum
LEAST_BUDGET = 20  # below, a score says more about the first draws than about the method


@dataclass(frozen=True, eq=False)
class RecordedSpace:
    """The configurations of one problem that worked, with their times in microseconds, and where they were read."""

    path: Path
    name: str
    times: Mapping[Configuration, float]
    size: tuple[int, int] | None = None  # rows and columns, where the problem is one of ours

    @cached_property
    def optimum(self) -> float:
        return min(self.times.values())

    @cached_property
    def random_curve(self) -> Floats:
        """The expected best time after 1, 2, … draws without replacement, exact."""
        times = np.sort(np.array(list(self.times.values())))
        count = len(times)
        better = np.arange(count)  # draws that miss the first i times leave the minimum at i or later
        survival, curve = np.ones(count), np.empty(count)
        for draws in range(count):
            survival = survival * np.maximum(count - better - draws, 0) / (count - draws)
            curve[draws] = (survival - np.append(survival[1:], 0.0)) @ times
        return curve

    @cached_property
    def budget(self) -> int:
        """Evaluations after which random sampling is expected to have come 95 % of the way from the median to the optimum."""
        median = float(np.median(list(self.times.values())))
        goal = median - COVERED * (median - self.optimum)
        return max(int(np.argmax(self.random_curve <= goal)) + 1, LEAST_BUDGET)

    @property
    def evaluations(self) -> int:
        """How long every method runs: the budget, and at least 100, so that most reach 95 % of the optimum."""
        return min(max(self.budget, 100), len(self.times))


def find(places: Sequence[Path]) -> list[RecordedSpace]:
    """The spaces in these files and folders, in order of name."""
    files = [file for place in places for file in (sorted(place.iterdir()) if place.is_dir() else [place])]
    return [space for file in files if _loader(file) for space in load(str(file))]


@lru_cache(maxsize=8)
def load(path: str) -> tuple[RecordedSpace, ...]:
    loader = _loader(Path(path))
    if loader is None:
        raise SystemExit(f"{path} is no recorded space; give {', '.join(LOADERS)} or a folder of such files")
    return tuple(loader(Path(path)))


def kernel_tuner_cache(path: Path) -> Iterator[RecordedSpace]:
    """The one space of a cache file of Kernel Tuner, whose times are milliseconds. A parameter with one value is left out."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    content = json.loads(text)
    names = [name for name in content["tune_params_keys"] if len(content["tune_params"][name]) > 1]
    times = {}
    for entry in content["cache"].values():
        time_ms = entry["time"]
        if isinstance(time_ms, int | float) and math.isfinite(time_ms) and time_ms < 1e15:
            times[Configuration("v0", tuple((name, _value(entry[name])) for name in names))] = 1000.0 * time_ms
    yield RecordedSpace(path, path.name.split(".")[0], times)


def own_database(path: Path) -> Iterator[RecordedSpace]:
    """One space per device, protocol and problem of a database of ours."""
    from autotune.database import Database

    with Database(path, "read") as database:
        for device in database.devices_measured():
            for timing in database.protocols_measured(device):
                found: dict[object, dict[Configuration, float]] = defaultdict(dict)
                for trial in database.trials(device, timing):
                    if trial.outcome.timed and trial.time_us:
                        found[trial.problem][trial.configuration] = trial.time_us
                for problem, times in found.items():
                    name = f"{problem}, {device.name}" if timing.name == "cold" else f"{problem}, {device.name}, {timing.name}"
                    yield RecordedSpace(path, name, times, (problem.rows, problem.cols))  # type: ignore[attr-defined]


LOADERS: dict[str, Callable[[Path], Iterator[RecordedSpace]]] = {
    ".json": kernel_tuner_cache,
    ".json.gz": kernel_tuner_cache,
    ".sqlite": own_database,
}


def _loader(path: Path) -> Callable[[Path], Iterator[RecordedSpace]] | None:
    return next((loader for suffix, loader in LOADERS.items() if path.name.endswith(suffix)), None)


def _value(value: object) -> Value:
    return value if isinstance(value, int | str) and not isinstance(value, bool) else str(value)
