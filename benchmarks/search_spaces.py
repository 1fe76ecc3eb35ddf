"""Recorded spaces: every configuration of a kernel with its time on one problem, from files of several kinds."""

import gzip
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.catalogue import operation_names
from autotune.configuration import Configuration, Value
from autotune.errors import UsageError
from autotune.problem import Problem

if TYPE_CHECKING:
    from autotune.database import StoredTrial

Floats = NDArray[np.float64]
COVERED = 0.95  # the budget ends where random has come this share of the way from the median to the optimum
LEAST_BUDGET, MOST_BUDGET = 20, 100  # below, a score tells more of the first draws than of the method; above, replays take hours
LEAST_EVALUATIONS = 40  # of a run: what a search without any knowledge may take on softmax
# One or two of each kind of softmax problem: square, long, short and odd rows, few rows. float32, since most versions are of that type.
REPRESENTATIVE = (
    "4096x4096", "4096x16384", "512x131072", "1048576x16", "1024x1000", "8192x4095", "16x1024", "8x131072"
)  # fmt: skip


FURTHER = (
    "4096x1024", "8192x2048", "8192x8192", "2048x32768", "1024x65536", "256x262144", "262144x32", "65536x128", "65536x256", "32768x512",
    "16384x2047", "64x50257", "1x1024", "1x4096", "128x4096", "32x128256", "1x131072", "262144x33", "1000000x17", "100000x100",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class RecordedSpace:
    """The configurations of one problem that worked, with their times in microseconds, and where they were read."""

    path: Path
    name: str
    times: Mapping[Configuration, float]
    problem: Problem | None = None  # where it is one of ours

    @cached_property
    def fingerprint(self) -> str:
        """Tells a space from another of the same name, such as the same problem measured again."""
        return hashlib.sha256(np.array(list(self.times.values())).tobytes()).hexdigest()[:8]

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
        """Evaluations after which random sampling is expected to have come 95 % of the way from the median to the optimum; 20 to 100."""
        median = float(np.median(list(self.times.values())))
        goal = median - COVERED * (median - self.optimum)
        reached = int(np.argmax(self.random_curve <= goal)) + 1
        return min(max(reached, LEAST_BUDGET), MOST_BUDGET, len(self.times))

    @property
    def evaluations(self) -> int:
        """How long every method runs, unless it finds the optimum before."""
        return min(max(self.budget, LEAST_EVALUATIONS), len(self.times))


def ours_alone(space: RecordedSpace) -> bool:
    """Whether our search runs on it beside, for how soon it finds what is worth finding on softmax."""
    return space.problem is not None and space.problem.dtype == "float32" and space.problem.size in FURTHER


def representative(space: RecordedSpace) -> bool:
    """Whether every method runs on it: a space of someone else's, or one of the representative softmax problems."""
    return space.problem is None or (space.problem.dtype == "float32" and space.problem.size in REPRESENTATIVE)


def find(places: Sequence[Path]) -> list[RecordedSpace]:
    """The spaces in these files and folders, in order of name. Raises UsageError for a file that is none, and where there are none."""
    for place in places:
        if not place.exists():
            raise UsageError(f"{place} does not exist; give {', '.join(LOADERS)} or a folder of such files")
    files = [file for place in places for file in (sorted(place.iterdir()) if place.is_dir() else [place])]
    found = [space for file in files if _loader(file) or file in places for space in load(str(file))]
    if not found:
        raise UsageError(
            f"there is no recorded space in {', '.join(map(str, places))}; give {', '.join(LOADERS)} or a folder of such files"
        )
    return found


@lru_cache(maxsize=8)
def load(path: str) -> tuple[RecordedSpace, ...]:
    loader = _loader(Path(path))
    if loader is None:
        raise UsageError(f"{path} is no recorded space; give {', '.join(LOADERS)} or a folder of such files")
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
    """One space per device, protocol and problem of a database of ours.

    A time here is the median of the most careful rounds that a configuration reached. A race was run, and not everyone came to its end:
    the finalists, and so the optimum of every space, have five paired rounds; those that left the race have its first rounds; those that
    were more than 1.5 times slower than the fastest have one sample; and those 20 times slower one launch. So the slower a time, the less
    certain it is. Of several trials of one configuration the most careful one counts, and of equally careful ones the last.
    """
    from autotune.database import Database

    with Database(path, "read") as database:
        for device, operation in product(database.devices_measured(), operation_names()):
            for timing in database.protocols_measured(device):
                suffix = "" if timing.name == "cold" else f", {timing.name}"
                for problem in database.problems_measured(operation, device, timing):
                    timed = [t for t in database.trials(device, timing, problem=problem) if t.outcome.timed and t.time_us]
                    found = {trial.configuration: trial for trial in sorted(timed, key=_care)}
                    times = {configuration: trial.time_us or math.inf for configuration, trial in sorted(found.items())}
                    yield RecordedSpace(path, f"{problem}, {device.name}{suffix}", times, problem)


def _care(trial: "StoredTrial") -> tuple[int, int, int]:
    kind = trial.evidence[0].kind
    return ("screen", "race", "final").index(kind), len(trial.evidence), trial.trial_id


LOADERS: dict[str, Callable[[Path], Iterator[RecordedSpace]]] = {
    ".json": kernel_tuner_cache,
    ".json.gz": kernel_tuner_cache,
    ".sqlite": own_database,
}


def _loader(path: Path) -> Callable[[Path], Iterator[RecordedSpace]] | None:
    return next((loader for suffix, loader in LOADERS.items() if path.name.endswith(suffix)), None)


def _value(value: object) -> Value:
    return value if isinstance(value, int | str) and not isinstance(value, bool) else str(value)
