"""The methods that are compared. Each gives the times of the distinct valid configurations it measured, in order."""

import atexit
import contextlib
import copy
import importlib.util
import io
import json
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from autotune.catalogue import load as load_operation
from autotune.configuration import Configuration, Value
from autotune.errors import UsageError
from autotune.search import Study
from autotune.search.neighbours import carried, distance, nearest
from autotune.search.space import parameters
from benchmarks.search_spaces import RecordedSpace, load

KERNEL_TUNER = "kernel_tuner:"
STRATEGIES = (
    "genetic_algorithm", "simulated_annealing", "pso", "hybrid_vndx", "adaptive_tabu_greywolf", "diff_evo", "firefly_algorithm",
    "dual_annealing", "greedy_ils", "mls", "bayes_opt",
)  # fmt: skip
SLOW = (KERNEL_TUNER + "bayes_opt",)  # run after everything else
FUTILE_ASKS = 60  # in a row without anything new, after which a method that repeats itself has ended
FUTILE_CALLS = 2000  # the same for Kernel Tuner's strategies, which ask for what is invalid too
MISSING = -1
ENUMERATED: dict[str, Any] = {}  # what Kernel Tuner found valid, by a space's fingerprint


def ours(space: RecordedSpace, seed: int) -> list[float]:
    """Our search, knowing nothing."""
    return _replay(Study(list(space.times), seed=seed), space)


def ours_with_neighbours(space: RecordedSpace, seed: int) -> list[float]:
    """Our search, knowing what the three nearest problems of the same database took, as a sweep does; nothing where there are none."""
    others = {other.problem: other.times for other in load(str(space.path)) if other.problem and other.name != space.name}
    if space.problem is None:
        return []
    near, operation = nearest(space.problem, others), load_operation(space.problem.operation)
    priors = [carried(others[problem], problem, space.problem, operation, space.times) for problem in near]
    distances = [distance(space.problem, problem) for problem in near]
    return _replay(Study(list(space.times), seed=seed, priors=priors, distances=distances), space) if near else []


def uniform(space: RecordedSpace, seed: int) -> list[float]:
    times = list(space.times.values())
    random.Random(seed).shuffle(times)
    return times[: space.evaluations]


def tpe(space: RecordedSpace, seed: int) -> list[float]:
    """Optuna's default sampler, asked for the version and then for that version's parameters, as one writes an Optuna objective.

    What it repeats or makes up costs it nothing, and it is told of a combination that is not in the space that it failed.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    axes = _axes(space)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    measured: dict[Configuration, float] = {}
    idle = 0
    while len(measured) < space.evaluations and idle < FUTILE_ASKS:
        trial = study.ask()
        version = trial.suggest_categorical("version", list(axes))
        values: list[tuple[str, Any]] = [
            (name, trial.suggest_categorical(f"{version} {name}", options)) for name, options in axes[version].items()
        ]
        asked = Configuration(version, tuple(values))
        idle = idle + 1 if asked in measured or asked not in space.times else 0
        if asked in space.times:
            study.tell(trial, space.times[asked])
            measured[asked] = space.times[asked]
            if measured[asked] == space.optimum:
                break
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return list(measured.values())


class Ended(BaseException):
    """A replay has nothing more to tell; no strategy catches it."""


def kernel_tuner(space: RecordedSpace, seed: int, strategy: str) -> list[float]:
    """A strategy of Kernel Tuner, at its default options, by its own replay (`tune_cache`).

    One that only asks for what it knows is ended, and one that fails (greedy_ils does where a configuration has no neighbour) keeps what
    it found.
    """
    from kernel_tuner.interface import tune_cache  # type: ignore[import-not-found, unused-ignore]

    measured: dict[tuple[Value, ...], float] = {}
    random.seed(seed)
    np.random.seed(seed)
    options = {"max_fevals": space.evaluations}
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), _watched(space, measured):
        warnings.simplefilter("ignore")
        try:
            tune_cache(_cache_file(str(space.path), space.name), strategy=strategy, strategy_options=options, quiet=True)
        except Ended:
            pass
        except Exception:
            if not measured:
                raise
    return list(measured.values())[: space.evaluations]


@contextlib.contextmanager
def _watched(space: RecordedSpace, measured: dict[tuple[Value, ...], float]) -> Iterator[None]:
    """Notes what Kernel Tuner measures, and lets it work out a space's valid configurations once: that takes nine tenths of a replay."""
    from kernel_tuner.runners.simulation import SimulationRunner  # type: ignore[import-not-found, unused-ignore]
    from kernel_tuner.searchspace import Searchspace  # type: ignore[import-not-found, unused-ignore]

    times = _table(space)[2]
    build, run = Searchspace._Searchspace__build_searchspace, SimulationRunner.run
    idle = 0

    def remembered(searchspace: Any, *arguments: Any) -> Any:
        if space.fingerprint not in ENUMERATED:
            ENUMERATED[space.fingerprint] = build(searchspace, *arguments)
        return tuple(copy.copy(part) for part in ENUMERATED[space.fingerprint])

    def noted(runner: Any, asked: Any, options: Any) -> Any:
        nonlocal idle
        asked, before = list(asked), len(measured)
        results = run(runner, asked, options)
        found = [tuple(row) for row, result in zip(asked, results, strict=True) if result is not None and tuple(row) in times]
        measured.update((row, times[row]) for row in found)
        idle = idle + 1 if len(measured) == before else 0
        if idle > FUTILE_CALLS or any(times[row] == space.optimum for row in found):
            raise Ended
        return results

    Searchspace._Searchspace__build_searchspace, SimulationRunner.run = remembered, noted
    try:
        yield
    finally:
        Searchspace._Searchspace__build_searchspace, SimulationRunner.run = build, run


ALL: dict[str, Callable[[RecordedSpace, int], list[float]]] = {
    "ours": ours,
    "ours, neighbours known": ours_with_neighbours,
    "random": uniform,
    "tpe": tpe,
    **{KERNEL_TUNER + name: partial(kernel_tuner, strategy=name) for name in STRATEGIES},
}


def available(wanted: str) -> tuple[list[str], list[str]]:
    """The methods of a list separated by ; ("all" for all of them) that can run here, and a sentence on those that cannot.

    Raises UsageError for one that does not exist, and where none can run.
    """
    names = list(ALL) if wanted == "all" else [word.strip() for word in wanted.split(";")]
    if unknown := [name for name in names if name not in ALL]:
        raise UsageError(f"method {unknown[0]!r} is not known; give all, or some of these, separated by ';': {'; '.join(ALL)}")
    if importlib.util.find_spec("kernel_tuner"):
        return names, []
    present = [name for name in names if not name.startswith(KERNEL_TUNER)]
    lacking = f"kernel_tuner cannot be imported by {sys.executable}: its strategies were not run; install kernel_tuner 1.5.0 there"
    if not present:
        raise UsageError(f"{lacking}, or name other methods")
    return present, [lacking] if len(present) < len(names) else []


def _replay(study: Study, space: RecordedSpace) -> list[float]:
    found: list[float] = []
    while len(found) < space.evaluations and space.optimum not in found[-1:] and (asked := study.ask()):
        study.tell(asked[0], space.times[asked[0]])
        found.append(space.times[asked[0]])
    return found


@lru_cache(maxsize=64)
def _axes(space: RecordedSpace) -> dict[str, dict[str, list[Value]]]:
    """The values of each parameter that occur, by version."""
    found: dict[str, dict[str, set[Value]]] = {}
    for configuration in space.times:
        for name, value in configuration.parameters:
            found.setdefault(configuration.version, {}).setdefault(name, set()).add(value)
    return {version: {name: sorted(values, key=str) for name, values in axes.items()} for version, axes in found.items()}


def _row(configuration: Configuration, names: Sequence[str]) -> tuple[Value, ...]:
    given = parameters(configuration)
    return tuple(given.get(name, MISSING) for name in names)


@lru_cache(maxsize=64)
def _table(space: RecordedSpace) -> tuple[list[str], dict[str, list[Value]], dict[tuple[Value, ...], float]]:
    """The parameters that vary, their values, and the times by row of values; a parameter that a version lacks is -1."""
    everything = list(dict.fromkeys(name for configuration in space.times for name in parameters(configuration)))
    rows = {_row(configuration, everything): time for configuration, time in space.times.items()}
    values = [sorted(set(column), key=lambda value: (isinstance(value, str), value)) for column in zip(*rows, strict=True)]
    varying = [i for i, column in enumerate(values) if len(column) > 1]
    names = [everything[i] for i in varying]
    return names, {everything[i]: values[i] for i in varying}, {tuple(row[i] for i in varying): time for row, time in rows.items()}


@lru_cache(maxsize=64)
def _cache_file(path: str, name: str) -> str:
    """A cache file of Kernel Tuner with nothing but the space: the samples of the published ones take a second to read each time."""
    space = next(space for space in load(path) if space.name == name)
    names, values, times = _table(space)
    no_cost = {"compile_time": 0.0, "verification_time": 0.0, "benchmark_time": 0.0}
    cache = {
        ",".join(map(str, row)): dict(zip(names, row, strict=True)) | no_cost | {"time": time, "times": [time]}
        for row, time in times.items()
    }
    about = {"device_name": "recorded", "kernel_name": "recorded", "problem_size": [1, 1], "objective": "time"}
    content = about | {"tune_params_keys": names, "tune_params": values, "cache": cache}
    folder = Path(tempfile.mkdtemp(prefix="search_quality_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "cache.json").write_text(json.dumps(content))
    return str(folder / "cache.json")
