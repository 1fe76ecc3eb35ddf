"""How good the search is: recorded spaces replayed by ours, by random, by Optuna's TPE and by Kernel Tuner's strategies.

    python benchmarks/search_quality.py SPACE... [--seeds 25] [--processes 2] [--methods 'ours;random'] [--output results/search_quality]

A SPACE is a Kernel Tuner cache file (.json, .json.gz), a database of ours (.sqlite: one space per problem), or a folder of such files.
Configurations that failed are left out for everyone, because Kernel Tuner's replay hides them too.

The score is that of Willemsen et al., "A methodology for comparing optimization algorithms for auto-tuning" (2024, doi
10.1016/j.future.2024.05.021), over evaluations: the mean of (random - method) / (random - optimum) over a budget that ends where
random sampling is expected to have come 95 % of the way from the median to the optimum, but after at least 20 and at most 100 evaluations.
0 is random, 1 the optimum at the first try. A run ends at the optimum, or with the budget, but not before 40 evaluations.

Every run is appended to a file in the work folder as soon as it is done, so an interrupted benchmark goes on where it was. Runs of ours
are done again when the search has changed.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

import autotune.search
from benchmarks import search_methods, search_report, search_spaces
from benchmarks.search_spaces import RecordedSpace
from benchmarks.starting import started

Task = tuple[str, str, str, int]  # file, space, method, seed
SEEDS_AT_ONCE = 5


def main() -> None:
    arguments = _arguments()
    spaces = search_spaces.find(arguments.spaces)
    methods, absent = search_methods.available(arguments.methods)
    print("\n".join([f"{len(spaces)} spaces, {len(methods)} methods, {arguments.seeds} seeds", *absent]), flush=True)
    log = Path(arguments.work) / "runs.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    keys = _tasks(spaces, methods, arguments.seeds)
    if not arguments.report_only:
        done = _done(log)
        _run({key: task for key, task in keys.items() if key not in done}, log, arguments.processes)
    runs = _done(log)
    found = {task: runs[key] for key, task in keys.items() if key in runs}
    waiting = [method for method in methods if method not in {of for _, _, of, _ in found}]
    absent += [f"Not run yet: {', '.join(waiting)}."] if waiting else []
    search_report.write(found, spaces, absent, Path(arguments.output))


def _tasks(spaces: Sequence[RecordedSpace], methods: Sequence[str], seeds: int) -> dict[str, Task]:
    """Every run by its key, a few seeds of everything first: an interrupted benchmark can be reported."""
    tasks = {
        _key(space, method, seed): (str(space.path), space.name, method, seed)
        for seed in range(seeds)
        for method in methods
        for space in spaces
        if search_spaces.representative(space) or (method.startswith("ours") and search_spaces.ours_alone(space))
    }
    return dict(sorted(tasks.items(), key=lambda item: (item[1][2] in search_methods.SLOW, item[1][3] // SEEDS_AT_ONCE)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spaces", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--methods", default="all", help=f"separated by ';', of: {'; '.join(search_methods.ALL)}")
    parser.add_argument("--work", default="build/search_quality", help="where runs are kept")
    parser.add_argument("--output", default="results/search_quality", help="where .md, .json and .svg are written")
    parser.add_argument("--report-only", action="store_true", help="run nothing, report what was run")
    return parser.parse_args()


def _run(tasks: Mapping[str, Task], log: Path, processes: int) -> None:
    started = time.monotonic()
    if log.exists() and not log.read_text().endswith("\n"):
        log.write_text(log.read_text() + "\n")  # a run that was being written when the benchmark was killed
    with log.open("a") as file, ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(_improvements, task): key for key, task in tasks.items()}
        for count, future in enumerate(as_completed(running), 1):
            line = {"key": running[future], "improvements": future.result()}
            file.write(json.dumps(line) + "\n")
            file.flush()
            if count % 25 == 0 or count == len(tasks):
                print(f"{count} of {len(tasks)} runs, {time.monotonic() - started:.0f} s", flush=True)


def _improvements(task: Task) -> list[tuple[int, float]]:
    """A run, as (evaluation, best time in microseconds) at each improvement."""
    path, name, method, seed = task
    space = next(space for space in search_spaces.load(path) if space.name == name)
    found: list[tuple[int, float]] = []
    for evaluation, time_us in enumerate(search_methods.ALL[method](space, seed), 1):
        if not found or time_us < found[-1][1]:
            found.append((evaluation, time_us))
    return found


def _key(space: RecordedSpace, method: str, seed: int) -> str:
    own = _own_source() if method.startswith("ours") else ""
    return "|".join([space.path.name, space.name, space.fingerprint, str(space.evaluations), method, str(seed), own])


@cache
def _own_source() -> str:
    folder = Path(autotune.search.__file__).parent
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.py")))).hexdigest()[:12]


def _done(log: Path) -> dict[str, list[tuple[int, float]]]:
    if not log.exists():
        return {}
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    return {line["key"]: line["improvements"] for line in lines}


if __name__ == "__main__":
    started(main)
