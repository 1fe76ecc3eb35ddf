"""The methods that are compared. Each gives the times of the distinct valid configurations it measured, in order."""

import atexit
import contextlib
import importlib.util
import io
import json
import math
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from search_spaces import RecordedSpace, load

from autotune.configuration import Configuration, Value
from autotune.search import Study
from autotune.search.space import parameters

KERNEL_TUNER = "kernel_tuner:"
STRATEGIES = (
    "genetic_algorithm", "simulated_annealing", "pso", "hybrid_vndx", "adaptive_tabu_greywolf", "diff_evo", "firefly_algorithm",
    "dual_annealing", "greedy_ils", "mls", "bayes_opt",
)  # fmt: skip
NEIGHBOURS = 3
FUTILE_ASKS = 30  # asks per evaluation after which a method that repeats itself has ended
MISSING = -1


def ours(space: RecordedSpace, seed: int) -> list[float]:
    """Our search, knowing nothing."""
    return _replay(Study(list(space.times), seed=seed), space)


def ours_with_neighbours(space: RecordedSpace, seed: int) -> list[float]:
    """Our search, knowing what the three nearest problems of the same database took; nothing where there are none."""
    others = [other for other in load(str(space.path)) if other.size and space.size and other is not space and other.size != space.size]
    nearest = sorted(others, key=lambda other: _distance(space, other))[:NEIGHBOURS]
    return _replay(Study(list(space.times), seed=seed, priors=[other.times for other in nearest]), space) if nearest else []


def uniform(space: RecordedSpace, seed: int) -> list[float]:
    times = list(space.times.values())
    random.Random(seed).shuffle(times)
    return times[: space.evaluations]


def tpe(space: RecordedSpace, seed: int) -> list[float]:
    """Optuna's default sampler over the parameters' values; what is invalid or known is told as such and costs it nothing."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names, values, times = _table(space)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    measured: dict[tuple[Value, ...], float] = {}
    for _ in range(FUTILE_ASKS * space.evaluations):
        trial = study.ask()
        asked: tuple[Any, ...] = tuple(trial.suggest_categorical(name, values[name]) for name in names)
        if asked in times:
            study.tell(trial, times[asked])
            measured[asked] = times[asked]
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        if len(measured) == space.evaluations:
            break
    return list(measured.values())


def kernel_tuner(space: RecordedSpace, seed: int, strategy: str) -> list[float]:
    """A strategy of Kernel Tuner, at its default options, by its own replay (`tune_cache`)."""
    from kernel_tuner.interface import tune_cache

    names, _, times = _table(space)
    random.seed(seed)
    np.random.seed(seed)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results, _ = tune_cache(
            _cache_file(str(space.path), space.name), strategy=strategy, strategy_options={"max_fevals": space.evaluations}, quiet=True
        )
    asked = dict.fromkeys(tuple(result[name] for name in names) for result in results)
    return [times[configuration] for configuration in asked if configuration in times][: space.evaluations]


ALL: dict[str, Callable[[RecordedSpace, int], list[float]]] = {
    "ours": ours,
    "ours, neighbours known": ours_with_neighbours,
    "random": uniform,
    "tpe": tpe,
    **{KERNEL_TUNER + name: partial(kernel_tuner, strategy=name) for name in STRATEGIES},
}


def available(wanted: str) -> tuple[list[str], list[str]]:
    """The methods of a comma-separated list ("all" for all of them) that can run here, and a sentence on those that cannot."""
    names = list(ALL) if wanted == "all" else [name for word in wanted.split(";") for name in ALL if name == word.strip()]
    if importlib.util.find_spec("kernel_tuner"):
        return names, []
    present = [name for name in names if not name.startswith(KERNEL_TUNER)]
    lacking = f"kernel_tuner cannot be imported by {sys.executable}: its strategies were not run; install kernel_tuner 1.5.0 there"
    return present, [lacking] if len(present) < len(names) else []


def _replay(study: Study, space: RecordedSpace) -> list[float]:
    found: list[float] = []
    while len(found) < space.evaluations and (asked := study.ask()):
        study.tell(asked[0], space.times[asked[0]])
        found.append(space.times[asked[0]])
    return found


def _distance(a: RecordedSpace, b: RecordedSpace) -> float:
    assert a.size is not None
    assert b.size is not None
    return abs(math.log2(a.size[0] / b.size[0])) + 4 * abs(math.log2(a.size[1] / b.size[1]))


def _row(configuration: Configuration, names: Sequence[str]) -> tuple[Value, ...]:
    given = parameters(configuration)
    return tuple(given.get(name, MISSING) for name in names)


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
