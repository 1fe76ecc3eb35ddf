"""`autotune compile`: build instances without a GPU, and keep what they take and their binaries."""

from pathlib import Path

import click

from autotune import nvcc, source
from autotune.cli.options import db_option, dtype_of, kernels_option, operation_of, repeatable
from autotune.cli.output import Column, Form, Row, emit, reading
from autotune.cli.pins import parse_configuration
from autotune.cli.summary import told_once
from autotune.configuration import Configuration
from autotune.database import Database, default_path
from autotune.errors import UsageError
from autotune.operation import Operation
from autotune.trial import Failure, Instance

COLUMNS = (
    Column("version", "version", right=False),
    Column("dtype", "dtype", right=False),
    Column("arch", "arch", right=False),
    Column("instances", "instances"),
    Column("registers", "registers", right=False),
    Column("spills", "with spills"),
    Column("static_shared_bytes", "static shared bytes", right=False),
)


@click.command("compile")
@click.argument("operation")
@repeatable("--arch", "archs", required=True, metavar="sm_NN", help="sm_NN for a cubin, compute_NN for PTX; may be repeated.")
@repeatable("--dtype", "dtypes", metavar="D", help="May be repeated.  [default: all that OPERATION offers]")
@repeatable("--version", "versions", metavar="vK", help="Only this version; may be repeated.")
@repeatable(
    "--configuration",
    "wanted",
    metavar="TEXT",
    help="Only this configuration, written as inspect shows it: 'v3 block 384, vector 4, unroll 4'; may be repeated.",
)
@click.option("--safe", is_flag=True, help="Only the configuration that takes any input.")
@click.option("--jobs", type=click.IntRange(min=1), help="Compilers at once.  [default: one per core]")
@db_option
@kernels_option
@reading
def compile_command(
    operation: str,
    archs: tuple[str, ...],
    dtypes: tuple[str, ...],
    versions: tuple[str, ...],
    wanted: tuple[str, ...],
    safe: bool,
    jobs: int | None,
    db: Path | None,
    kernels: Path | None,
    form: Form,
) -> int:
    """Compile the instances of OPERATION with nvcc, store them, and show registers, spills and shared memory."""
    loaded = operation_of(operation, kernels, versions)
    names = [dtype_of(loaded, name) for name in dtypes] or list(loaded.dtypes)
    if sum(map(bool, (versions, wanted, safe))) > 1:
        raise UsageError("--version, --configuration and --safe each say what is compiled; give one of them")
    named = list(dict.fromkeys(parse_configuration(loaded, text) for text in wanted))
    chosen = [loaded.safe] if safe else named or loaded.configurations(versions)
    rows: list[Row] = []
    failures: list[tuple[str, str, str]] = []
    with Database(db or default_path(), mode="write", create=True) as database:
        for name, template in source.templates(loaded):
            database.add_template(loaded.name, name, template)
        for arch in archs:
            for dtype in names:
                built = _built(loaded, chosen, dtype, arch, jobs, failures)
                for instance in built:
                    database.store_binary(instance)
                rows += _rows(built, dtype, arch)
    emit(rows, COLUMNS, form)
    for message in told_once(failures):
        click.echo(message, err=True)
    return 1 if failures else 0


def _built(
    operation: Operation, chosen: list[Configuration], dtype: str, arch: str, jobs: int | None, failures: list[tuple[str, str, str]]
) -> list[Instance]:
    found = []
    for version in operation.versions.values():
        wanted = [c for c in chosen if c.version == version.name and dtype in version.dtypes]
        for configuration, result in nvcc.compile_instances(version, wanted, dtype, arch, jobs=jobs or 0):
            if isinstance(result, Failure):
                failures.append((f"{version.name} {dtype} {arch}", f"{configuration} {dtype} {arch}", result.message))
            else:
                found.append(result)
    return found


def _rows(built: list[Instance], dtype: str, arch: str) -> list[Row]:
    rows: list[Row] = []
    for version in dict.fromkeys(instance.configuration.version for instance in built):
        mine = [i.resources for i in built if i.configuration.version == version and i.resources]
        count = sum(i.configuration.version == version for i in built)
        rows.append(
            {
                "version": version,
                "dtype": dtype,
                "arch": arch,
                "instances": count,
                "registers": _span([r.registers for r in mine]),
                "spills": sum(r.spill_bytes > 0 for r in mine),
                "static_shared_bytes": _span([r.static_shared_bytes for r in mine]),
            }
        )
    return rows


def _span(values: list[int]) -> str | None:
    if not values:
        return None
    return str(values[0]) if min(values) == max(values) else f"{min(values)}-{max(values)}"
