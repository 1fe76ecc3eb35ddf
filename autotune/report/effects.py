"""What the trials of one problem add up to: the best of each version, what each parameter does, how the search converged, what failed."""

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median
from typing import Any

from autotune.cli.output import sized
from autotune.trial import Outcome

Row = dict[str, Any]


@dataclass(slots=True)
class Tally:
    """The trials of one problem, added one by one in the order in which they were made. Times are in microseconds.

    `settled` is the trial that decided which kernel is best, None where none did.
    """

    problem: int
    rows: int
    cols: int
    layout: tuple[int, ...]
    settled: int | None = None
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
        """Count a trial; `trial` has id, version, parameters as JSON, outcome, message, and of its best evidence kind and time_us.

        For its version stands the settled one, else the fastest of the most careful kind, as in the view best_per_version.
        """
        self.trials += 1
        version, outcome, time_us = trial["version"], Outcome(trial["outcome"]), trial["time_us"]
        if not outcome.timed:
            self.failures[version, outcome.value] += 1
            self.reasons[version, outcome.value, str(trial["message"]).strip().split("\n")[0][:200]] += 1
        elif time_us is not None:
            rank = (trial["id"] != self.settled, trial["kind"], time_us)
            if version not in self.versions or rank < self.versions[version]["rank"]:
                self.versions[version] = {"time_us": time_us, "parameters": trial["parameters"], "rank": rank}
            if not self.convergence or time_us < self.convergence[-1]["time_us"]:
                self.convergence.append({"trial": self.trials, "time_us": time_us, "version": version})
            for name, value in _parameters(trial["parameters"]):
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
        least = self.convergence[-1]["time_us"]
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


@lru_cache(maxsize=4096)
def _parameters(text: str) -> tuple[tuple[str, Any], ...]:
    """The parameters that a configuration's JSON names: a size after the other has the same ones."""
    return tuple(json.loads(text).items())
