"""Record the database that is shipped for the GPU in front of you: every configuration, at every size of results/sizes.txt.

    python benchmarks/record_device.py --work work.sqlite --out results/nvidia-h200.sqlite

All measurements go into the database `--work`, which can be carried from machine to machine: the same command goes on from there and
measures nothing twice. `--seconds` ends it in time, with everything stored; `--out`, when given, is written at the end, read-only.
"""

import os
import time
from contextlib import closing
from pathlib import Path

import click

from autotune import nvcc, source
from autotune.backends.select import select
from autotune.catalogue import load, shipped
from autotune.cli.options import problems_of
from autotune.cli.progress import PlainWatcher
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.operation import Operation
from autotune.search import Budget
from autotune.sweeping import sweep
from autotune.trial import Failure
from autotune.watch import Attempt, ProblemSummary

PTX_ARCH = "compute_75"  # the oldest that CUDA 13 compiles for; every later driver and GPU can take it


class Until(PlainWatcher):
    """Ends the sweep at a point in time, as Ctrl-C would."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def trial(self, summary: ProblemSummary, attempt: Attempt) -> None:
        if time.monotonic() > self._deadline:
            raise KeyboardInterrupt

    def problem(self, summary: ProblemSummary) -> None:
        if time.monotonic() > self._deadline:
            raise KeyboardInterrupt


@click.command()
@click.argument("operation", default="softmax")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="The database that is written; goes on from what is in it.")
@click.option("--out", type=click.Path(path_type=Path), help="The read-only export; replaces what is there.")
@click.option("--sizes", type=click.Path(path_type=Path, exists=True), help="One size a line.  [default: results/sizes.txt]")
@click.option("--dtype", "dtypes", multiple=True, help="May be repeated.  [default: float32]")
@click.option("--version", "versions", multiple=True, help="May be repeated.  [default: all]")
@click.option("--seconds", type=float, default=float("inf"), help="End in time, with everything stored.")
@click.option("--device", default="cuda", show_default=True)
def main(
    operation: str,
    work: Path,
    out: Path | None,
    sizes: Path | None,
    dtypes: tuple[str, ...],
    versions: tuple[str, ...],
    seconds: float,
    device: str,
) -> None:
    """Record OPERATION (softmax) on the GPU in front of you."""
    deadline = time.monotonic() + seconds
    loaded = load(operation)
    problems = problems_of(loaded, (), sizes or shipped("results") / "sizes.txt", dtypes)
    with closing(select(device).backend) as backend, Database(work, mode="write", create=True) as database:
        keep_safe_kernels(loaded, database, backend.device.arch)
        summary = sweep(
            loaded,
            problems,
            backend,
            database,
            versions=versions,
            budget=Budget(exhaustive=True),
            command=f"record_device.py {operation}",
            watcher=Until(deadline),
        )
        done = sum(p.confirmed for p in summary.problems)
        click.echo(f"{done} of {len(problems)} problems are confirmed")
        if out is not None:
            repack(loaded, database)
            if out.exists():
                os.unlink(out)  # noqa: PTH108 (an export is read-only, and replaced as a whole)
            manifest = database.export(out)
            click.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB, {manifest}")


def repack(operation: Operation, database: Database) -> None:
    """Build the stored instances again, with each other for neighbours: as they came, most of a unit was kernels that nobody needs.

    The code of an instance does not depend on its neighbours, so the times that were taken stand; the file shrinks to a half.
    """
    rows = database.select(
        "SELECT DISTINCT version, parameters, dtype, arch, template_sha FROM stored_instances WHERE operation = ?", (operation.name,)
    )
    current = {(name, template.sha) for name, template in source.templates(operation)}
    wanted: dict[tuple[str, str, str], list[Configuration]] = {}
    for row in rows:
        if (row["version"], row["template_sha"]) in current:
            chosen = Configuration.from_json(row["version"], row["parameters"])
            wanted.setdefault((row["version"], row["dtype"], row["arch"]), []).append(chosen)
    for (name, dtype, arch), configurations in wanted.items():
        for _, built in nvcc.compile_instances(operation.version(name), sorted(configurations), dtype, arch):
            if isinstance(built, Failure):
                raise SystemExit(f"a stored instance does not compile any more: {built.message}")
            database.store_binary(built)
    with database.write() as connection:
        connection.execute("DELETE FROM binaries WHERE sha NOT IN (SELECT binary_sha FROM instances WHERE binary_sha IS NOT NULL)")


def keep_safe_kernels(operation: Operation, database: Database, arch: str) -> None:
    """Store the configuration that takes any input: for this GPU, and as PTX for those that nobody has tuned for."""
    version = operation.version(operation.safe.version)
    database.add_template(operation.name, version.name, source.read(version.template))
    for dtype in version.dtypes:
        for target in (arch, PTX_ARCH):
            for _, built in nvcc.compile_instances(version, [operation.safe], dtype, target):
                if isinstance(built, Failure):
                    raise SystemExit(f"the safe kernel does not compile for {target}: {built.message}")
                database.store_binary(built)


if __name__ == "__main__":
    main()
