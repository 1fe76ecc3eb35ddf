"""What the trials of one problem add up to: the best of each version, what each parameter does, how the search converged, what failed."""

import json
from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from autotune.cli.output import sized
from autotune.trial import Outcome

Row = dict[str, Any]


@dataclass(slots=True)
class Tally:
    """The trials of one problem, added one by one in the order in which they were made. Times are in microseconds."""

    problem: int
    rows: int
    cols: int
    layout: tuple[int, ...]
    trials: int = 0
    versions: dict[str, Row] = field(default_factory=dict)
    convergence: list[Row] = field(default_factory=list)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _times: dict[tuple[str, str, Any], list[float]] = field(default_factory=dict)

    @property
    def size(self) -> str:
        """The size in words, with the layout where it is not the usual one: packed, aligned to 16 bytes, into another matrix."""
        return sized(self.rows, self.cols, *self.layout)

    def add(self, trial: Row) -> None:
        """Count a trial; `trial` has version, parameters as JSON, outcome, message and time_us."""
        self.trials += 1
        version, outcome, time_us = trial["version"], Outcome(trial["outcome"]), trial["time_us"]
        if not outcome.timed:
            self.failures[version, outcome.value] += 1
            self.reasons[version, outcome.value, str(trial["message"]).strip().split("\n")[0][:200]] += 1
        elif time_us is not None:
            fastest = self.versions.get(version)
            if fastest is None or time_us < fastest["time_us"]:
                self.versions[version] = {"time_us": time_us, "parameters": trial["parameters"]}
            if not self.convergence or time_us < self.convergence[-1]["time_us"]:
                self.convergence.append({"trial": self.trials, "time_us": time_us, "version": version})
            for name, value in json.loads(trial["parameters"]).items():
                self._times.setdefault((version, name, value), []).append(time_us)

    def curve(self) -> list[Row]:
        """The best time seen after each trial that lowered it, over the final one, and the same again after the last trial."""
        if not self.convergence:
            return []
        least = self.convergence[-1]["time_us"]
        steps = [step | {"slowdown": step["time_us"] / least} for step in self.convergence]
        last = steps[-1]
        return steps if last["trial"] == self.trials else [*steps, last | {"trial": self.trials, "version": None}]

    def effects(self) -> list[Row]:
        """For each value of each parameter: the best and the median time among the configurations that have it, over the best of all."""
        if not self._times:
            return []
        least = min(fastest["time_us"] for fastest in self.versions.values())
        return [
            {
                "version": version,
                "parameter": name,
                "value": value,
                "best": min(times) / least,
                "median": median(times) / least,
                "configurations": len(times),
            }
            for (version, name, value), times in self._times.items()
        ]
