"""Make the shipped database from what benchmarks/record_device.py measured. Needs nvcc and no GPU.

    python benchmarks/ship_device.py --work FOLDER --out results/nvidia-h200.sqlite

Everything measured is merged into FOLDER/merged.db, which stays. The shipped file is made from a copy of it:

- problems that are not in results/sizes.txt, trials of templates that have changed and trials that were repeated are left out;
- best kernels are decided anew, by the final rounds of the latest run of a problem, and selectors trained, on all trials;
- where kernels tie within `--tie`, one that is needed anyway is preferred, so that fewer travel; sizes of most interest keep the fastest;
- compiled, and compressed as far as they go, are the kernels that are best somewhere, and those without which a selector's choice would be
  expected to be 2 % slower than what is compiled;
- trials far behind and rounds that decide nothing go, as much as it takes to come below `--megabytes`: the manifest says which.
"""

import json
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

import click

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune import nvcc, source
from autotune.catalogue import load, shipped
from autotune.cli.options import problems_of
from autotune.configuration import Configuration
from autotune.database import Database, Rebuilt
from autotune.database.prune import BEHIND, STALE, SUPERSEDED, present_templates
from autotune.database.read import problem_of
from autotune.database.rebuild import templates_here
from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.selector import Trained, train_all
from autotune.selector.dense import sorely_missed
from autotune.selector.matrix import default_choices
from autotune.trial import Failure, TimingProtocol
from benchmarks.portfolio import prefer
from benchmarks.recording import Prepared, opened, sources
from benchmarks.starting import started

PTX_ARCH = "compute_75"  # the oldest that CUDA 13 compiles for; every later driver and GPU can take it
BEHINDS = (20.0, 3.0, 2.0, 1.5, 1.3, 1.2, 1.1, 1.05)
PER_UNIT = 16  # more neighbours compress better, and take longer to load with the first of them
WORSE = 0.02  # expected log regret for which one more kernel travels that a selector would choose
WHOLE_SIZES = 7  # from the first, keep all trials, to be replayed and compared
LONG_COLS = tuple((quarters << power) - odd for power in range(17, 23) for quarters in (4, 5, 6, 7) for odd in (0, 15))
LONG_ROWS = (1, 2, 4, 7, 8, 16, 32, 64, 256)  # few enough for blocks of one row all over the GPU, for clusters in one wave, and more
MOST_ELEMENTS = 1 << 34
MERGED = "merged.db"  # not *.sqlite, which is what is merged


@click.command()
@click.argument("operation", default="softmax")
@click.option("--work", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True, help="What was measured.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The shipped file; replaces what is there.")
@click.option("--also", multiple=True, type=click.Path(path_type=Path, exists=True), help="Databases to merge too, such as the one before.")
@click.option("--sizes", type=click.Path(path_type=Path, exists=True), help="[default: results/sizes.txt]")
@click.option("--strict", default=28, show_default=True, help="So many sizes, from the first, keep the fastest kernel.")
@click.option("--tie", default=0.01, show_default=True, help="How much slower a kernel that is needed anyway may be.")
@click.option("--megabytes", default=9.95, show_default=True, help="The largest file that will do.")
def main(
    operation: str, work: Path, out: Path, also: tuple[Path, ...], sizes: Path | None, strict: int, tie: float, megabytes: float
) -> None:
    """Make the shipped database of OPERATION (softmax)."""
    loaded = load(operation)
    problems = problems_of(loaded, (), sizes or shipped("results") / "sizes.txt", loaded.dtypes)
    ship(loaded, work, out, problems, also=also, strict=strict, tie=tie, megabytes=megabytes)


def ship(
    operation: Operation,
    work: Path,
    out: Path,
    problems: Sequence[Problem],
    *,
    also: Sequence[Path] = (),
    strict: int = 28,
    tie: float = 0.01,
    megabytes: float = 9.95,
    behinds: Sequence[float] = BEHINDS,
) -> None:
    """Make `out` from what was measured in `work`: these problems, of which the first `strict` sizes keep their fastest kernel."""
    merged = merge(work, also)
    first = list(dict.fromkeys((p.rows, p.cols) for p in problems))[:strict]
    with tempfile.TemporaryDirectory(prefix="autotune-ship-") as scratch, Database(shutil.copy(merged, scratch)) as database:
        settled = decide(operation, database, problems)
        trained = train_all(database, {operation.name: operation})
        say(f"{settled}; " + "; ".join(f"{t.dtype}: {t.model}, {t.why}" for t in trained))
        device, timing = _one_device(database)
        needed = {(c, dtype) for dtype in operation.dtypes for c in longer_than_recorded(operation, device, dtype)}
        needed |= {(operation.safe, dtype) for dtype in operation.version(operation.safe.version).dtypes}
        loss = prefer(database, operation, device, timing, needed, first, tie)
        say(loss)
        for t in trained:
            mine = {c for c, dtype in needed if dtype == t.dtype}
            needed |= {(c, t.dtype) for c in sorely_missed(t.model, operation, device, t.dtype, mine, WORSE)}
        compile_needed(operation, database, device, needed)
        check(database)
        database.pack_binaries()
        whole = first[:WHOLE_SIZES]
        kept = whole_trials(database, whole) | best_of_versions(database) | members_trials(database, operation, device, trained)
        manifest = thinned(database, out, kept, len(whole), megabytes, behinds, loss)
    say(f"{out}: {out.stat().st_size / 1e6:.2f} MB, {json.dumps({k: v for k, v in manifest.items() if k != 'templates'})}")


def merge(work: Path, also: Sequence[Path] = ()) -> Path:
    """Everything measured, in one database in `work`."""
    merged = work / MERGED
    with Database(merged, create=True) as database:
        for path in [*also, *sources(work)]:
            with opened(path) as plain:
                added = database.import_from(plain).added
            say(f"{path.name}: {added.get('trials', 0)} new trials, {added.get('best', 0)} new best kernels")
        with database.write() as connection:  # all of it is ours
            connection.execute("UPDATE runs SET origin = 'local'")
    return merged


def decide(operation: Operation, database: Database, problems: Collection[Problem]) -> Rebuilt:
    """Settle `problems` by all trials of today's templates; everything else is left out."""
    wanted = set(problems)
    database.forget_problems(row["id"] for row in database.select("SELECT * FROM problems") if problem_of(row) not in wanted)
    database.forget_earlier_finals()
    database.forget_earlier_copies()
    settled = database.rebuild({operation.name: Prepared.tried(operation, database)})
    with database.write() as connection:
        connection.execute("DELETE FROM best WHERE state <> 'confirmed'")
        connection.execute("DELETE FROM selectors")
    database.prune(database.to_prune(STALE, present_templates({operation.name: templates_here(operation).values()})))
    database.prune(database.to_prune(SUPERSEDED))
    with database.write() as connection:  # with them go the blocks of kernels that are not these any more
        connection.execute("DELETE FROM blocked WHERE template NOT IN (SELECT template FROM trials)")
    database.give_back_space()
    database.forget_problems(row["id"] for row in database.select("SELECT id FROM problems WHERE id NOT IN (SELECT problem FROM best)"))
    return settled


def longer_than_recorded(operation: Operation, device: Device, dtype: str) -> set[Configuration]:
    """The analytic default's first choices for rows that nothing holds: without them the dispatcher would fall to the safe kernel."""
    sizes = [(rows, cols) for cols in LONG_COLS for rows in LONG_ROWS if rows * cols <= MOST_ELEMENTS]
    asked = [Problem(operation.name, rows, cols, dtype) for rows, cols in sizes]
    able = ((c for c in operation.defaults(p, device) if operation.applicable(c, p, device)) for p in asked)
    return {configuration for first in able for configuration in islice(first, 1)}


def compile_needed(operation: Operation, database: Database, device: Device, needed: Collection[tuple[Configuration, str]]) -> None:
    """Compile what is needed, kernels of one version with each other for neighbours, and the safe kernel for every other GPU.

    The code of an instance does not depend on its neighbours, so the times that were taken stand.
    """
    with database.write() as connection:
        connection.execute("UPDATE instances SET binary_sha = NULL")
        connection.execute("DELETE FROM binaries")
    for name, template in source.templates(operation):
        database.add_template(operation.name, name, template)
    units = {(c.version, dtype, device.arch) for c, dtype in needed}
    safe = operation.version(operation.safe.version)
    units |= {(safe.name, dtype, arch) for dtype in safe.dtypes for arch in (device.arch, PTX_ARCH)}
    for version, dtype, arch in sorted(units):
        wanted = {c for c, of in needed if (c.version, of) == (version, dtype) and arch == device.arch}
        wanted |= {operation.safe} if version == safe.name else set()
        for configuration, built in nvcc.compile_instances(operation.version(version), sorted(wanted), dtype, arch, per_unit=PER_UNIT):
            if isinstance(built, Failure):
                raise SystemExit(f"{configuration} does not compile any more: {built.message}")
            database.store_binary(built)
        say(f"{len(wanted)} kernels compiled: {version} {dtype} {arch}")


def check(database: Database) -> None:
    """Raise SystemExit unless every best kernel has its binary: another compiler's kernels are others than those that were timed."""
    (row,) = database.select("SELECT (SELECT count(*) FROM best) AS best, (SELECT count(*) FROM dispatchable) AS dispatchable")
    if row["best"] != row["dispatchable"]:
        used = [row["compiler"] for row in database.select("SELECT DISTINCT compiler FROM instances")]
        raise SystemExit(f"only {row['dispatchable']} of {row['best']} best kernels have a binary; the compilers were {', '.join(used)}")


def thinned(
    database: Database, out: Path, kept: Collection[int], first: int, megabytes: float, behinds: Sequence[float], loss: str
) -> dict[str, object]:
    """Thin `database` until its export is small enough; returns the manifest of `out`. The trials `kept` stay."""
    deciding = {row["id"] for row in database.select(_DECIDING)}
    database.thin_rounds(deciding)
    database.drop_indexes()
    for behind in behinds:
        database.prune(database.to_prune(BEHIND, behind) - set(kept))
        database.give_back_space()
        database.forget_unused()
        note = (
            f"Thinned to be shipped. Left out are trials {behind:g} or more times as slow as the best of their problem, but for the "
            f"best of each version, what selectors choose among, and the first {first} sizes; and rounds, but for the final ones of "
            f"the best and of the runner-up, and of every other trial the one that carries its time. {loss}"
        )
        say(f"without trials {behind:g} times behind: {_megabytes(database):.2f} MB")
        if _megabytes(database) <= megabytes:
            made = database.path.with_name("export.db")
            manifest = database.export(made, note)
            partial = out.with_name(f".{out.name}.partial")
            shutil.copy(made, partial)
            partial.replace(out)  # an export is read-only, and replaced as a whole
            return manifest
    raise SystemExit(f"even without trials {behinds[-1]:g} times behind, it is larger than {megabytes} MB")


def _megabytes(database: Database) -> float:
    """The size of a copy of `database` with full pages alone, as an export is one."""
    with tempfile.TemporaryDirectory(prefix="autotune-ship-") as folder, closing(sqlite3.connect(database.path)) as connection:
        copy = Path(folder) / "copy.sqlite"
        connection.execute("VACUUM INTO ?", (str(copy),))
        return copy.stat().st_size / 1e6


_DECIDING = """
SELECT t.id FROM trials t JOIN runs u ON u.id = t.run
JOIN best b ON b.problem = t.problem AND b.device = u.device AND b.protocol = u.protocol
WHERE t.id = b.trial OR (t.configuration = b.runner_up AND EXISTS (SELECT 1 FROM rounds r WHERE r.trial = t.id AND r.kind = 'final'))
"""


def whole_trials(database: Database, first: Collection[tuple[int, int]]) -> set[int]:
    """The trials of the sizes `first`."""
    rows = database.select("SELECT t.id, p.rows, p.cols FROM trials t JOIN problems p ON p.id = t.problem")
    return {row["id"] for row in rows if (row["rows"], row["cols"]) in first}


def best_of_versions(database: Database) -> set[int]:
    """The best trial of each version at each problem."""
    return {row["trial"] for row in database.best_per_version()}


def members_trials(database: Database, operation: Operation, device: Device, trained: Collection[Trained]) -> set[int]:
    """The trials of what selectors choose among, so that they can be trained again on what is shipped."""
    models = {t.dtype: t.model for t in trained}
    found: set[int] = set()
    members: dict[int, set[str]] = {}
    for row in database.select(_CONFIGURED, (operation.name,)):
        if row["dtype"] not in models:
            continue
        if row["problem"] not in members:
            model, problem = models[row["dtype"]], problem_of(row)
            fitted = [operation.fitted(family, problem) for family in model.members if family]
            fitted.append(next(default_choices(operation, device, problem, model.versions), None))
            members[row["problem"]] = {f"{c.version} {c.to_json()}" for c in fitted if c}
        if f"{row['version']} {row['parameters']}" in members[row["problem"]]:
            found.add(row["trial"])
    return found


_CONFIGURED = """
SELECT p.*, t.problem, t.id AS trial, c.version, c.parameters FROM trials t JOIN problems p ON p.id = t.problem
JOIN configurations c ON c.id = t.configuration WHERE p.operation = ?
"""


def _one_device(database: Database) -> tuple[Device, TimingProtocol]:
    (device,) = database.devices_measured()
    return device, max(database.protocols_measured(device), key=lambda timing: timing.rule)


def say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()


if __name__ == "__main__":
    started(main)
