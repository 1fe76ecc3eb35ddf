"""`autotune export`, `import` and `rebuild`: how measurements travel, and what follows from them."""

import json
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from autotune.catalogue import load, operation_names
from autotune.cli.hints import hint
from autotune.cli.options import db_option, dtype_option, kernels_option, reading_database, require_known, size_option
from autotune.cli.output import Column, Form, Row, counted, emit, reading, say
from autotune.database import Database, default_path
from autotune.database.kernel_tuner import import_cache
from autotune.database.kernel_tuner_cache import Cache, is_cache, read_cache
from autotune.database.placing import new_file
from autotune.database.rebuild import templates_here
from autotune.database.transfer import Vetted, vetted
from autotune.element import element
from autotune.errors import AutotuneError, UsageError
from autotune.problem import parse_size
from autotune.selector import train_all

PACE_S = 5.0  # between two words on how far a rebuild is
FILE = click.Path(path_type=Path, dir_okay=False)
ACCEPTED = "import takes databases and exports of autotune, and cache files of Kernel Tuner, gzipped or not"
IMPORTED = (
    Column("file", "file", right=False, long=True, named=False),
    Column("trials", "new trials"),
    Column("best", "new best kernels"),
    Column("binaries", "new compiled kernels"),
    Column("note", "note", right=False, long=True),
)
REBUILT = (
    Column("settled", "problems settled"),
    Column("stale", "stale"),
    Column("unknown", "of operations that are not here"),
    Column("selectors", "selectors trained"),
)


@click.command("export")
@click.argument("file", required=False, type=FILE)
@click.option("--t4", "t4_file", type=FILE, metavar="FILE", help="Write trials in T4, the JSON format that auto-tuners exchange.")
@click.option("--optuna", "optuna_file", type=FILE, metavar="FILE", help="Write trials as an Optuna storage, a study for each problem.")
@click.option("--device", metavar="NAME", help="With --t4 and --optuna: only this device.")
@size_option
@dtype_option
@db_option
def export_command(
    file: Path | None,
    t4_file: Path | None,
    optuna_file: Path | None,
    device: str | None,
    size: str | None,
    dtype: str | None,
    db: Path | None,
) -> None:
    """Write the whole database to FILE: one read-only SQLite file with a manifest, for others to import.

    --size and --dtype, like --device, choose what goes into --t4 and --optuna. No existing file is replaced.
    """
    if not any((file, t4_file, optuna_file)):
        raise UsageError("nothing to write; name a FILE for the database, or give --t4 FILE or --optuna FILE")
    if file and any((device, size, dtype)):
        raise UsageError("--device, --size and --dtype choose trials for --t4 and --optuna; FILE is the whole database")
    with reading_database(db) as database:
        require_known(database, "device", device)
        if file:
            rows = database.export(file)["rows"]
            held = counted(rows["trials"], "trial"), counted(rows["best"], "best kernel"), counted(rows["binaries"], "compiled kernel")
            click.echo(f"{file}: {', '.join(held)}")
        if t4_file or optuna_file:
            trials = database.trial_rows(device=device, **_chosen(size, dtype))
            if not trials:
                raise UsageError(f"database {database.path} has no such trials; `{hint('inspect', 'problems')}` lists what there is")
            _write_trials(database, trials, t4_file, optuna_file)


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--with-kernels", is_flag=True, help="Also take compiled kernels, of those templates only that are here, by their hash.")
@click.option(
    "--dtype", default="float32", show_default=True, metavar="D", help="The element type of Kernel Tuner's caches, which do not say it."
)
@db_option
@kernels_option
@reading
def import_command(files: tuple[Path, ...], with_kernels: bool, dtype: str, db: Path | None, kernels: Path | None, form: Form) -> None:
    """Add what FILES say: databases and exports of autotune, and cache files of Kernel Tuner.

    Doing it again adds nothing, and the order does not matter. What was confirmed here is never replaced by what others say. All FILES are
    checked first, and nothing is imported unless every one of them can be. Should the disk become full then, each file went in whole or
    not at all, and the message says which.
    """
    for file in files:
        if wrong := _unlike(file):
            raise UsageError(f"{file} {wrong}; {ACCEPTED}; nothing was imported")
    trusted = _templates(kernels) if with_kernels else []
    name = element(dtype).name
    with ExitStack() as stack:
        sources = [(file, _checked(file, name, stack)) for file in files]
        with Database(db or default_path(), create=True) as database:
            rows = list(_added(database, sources, trusted))
    emit(rows, IMPORTED, form)


@click.command("rebuild")
@db_option
@kernels_option
@reading
def rebuild_command(db: Path | None, kernels: Path | None, form: Form) -> None:
    """Settle every problem again by its trials alone, with today's templates and blocks, and train the selectors on what they say.

    A selector that was trained on these very measurements is left as it is. How far it is goes to standard error.
    """
    folder = kernels.resolve() if kernels else None
    operations = {name: load(name, folder) for name in operation_names(folder)}
    with Database(db or default_path()) as database:
        done = database.rebuild(operations, _Pace())
        trained = train_all(database, operations, lambda step: click.echo(step, err=True))
    stories = [f"selector for {t.operation} {t.dtype} on {t.device.name}: {t.model}; {t.why}" for t in trained]
    counts = {"settled": done.settled, "stale": done.stale, "unknown": done.unknown, "selectors": len(trained)}
    emit([{**counts, "trained": stories}], REBUILT, form)
    if form == "table":
        for story in stories:
            say(story)


class _Pace:
    """Says on standard error how far a rebuild is, now and then."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self._said > PACE_S:
            self._said = time.monotonic()
            click.echo(f"settled {done} of {counted(total, 'problem')}", err=True)


def _unlike(file: Path) -> str:
    """What `file` is when nothing that can be imported begins so; "" otherwise."""
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):
            return "is a folder" if stat.S_ISDIR(found.st_mode) else "is not a regular file"
        if not found.st_size:
            return "is empty"
        with file.open("rb") as opened:
            head = opened.read(16)
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "" if head == b"SQLite format 3\0" or is_cache(file) else "is neither an SQLite database nor JSON"


def _checked(file: Path, dtype: str, stack: ExitStack) -> Vetted | Cache:
    """What `file` says, every word of which can be imported. Raises UsageError otherwise."""
    try:
        return read_cache(file, dtype) if is_cache(file) else stack.enter_context(vetted(file))
    except UsageError as error:
        said = str(error)
        if "--db" in said:
            raise UsageError(f"{said.partition(';')[0]}; nothing was imported, for {ACCEPTED}") from error
        if "nothing was imported" not in said:
            raise UsageError(f"{said}; nothing was imported") from error
        raise


def _added(database: Database, sources: Sequence[tuple[Path, Vetted | Cache]], trusted: list[str]) -> Iterator[Row]:
    """Add each source in a transaction of its own, and tell what it brought."""
    for place, (file, source) in enumerate(sources):
        try:
            if isinstance(source, Cache):
                cut = "; its last line was cut short and is left out" if source.cut else ""
                note = f"Kernel Tuner: {source.problem} on {source.device}{cut}"
                yield _imported(file, import_cache(database, source), note)
            else:
                brought = database.merge(source, kernels_of=trusted)
                yield _imported(file, brought.added, "; ".join(brought.clashes))
        except AutotuneError as error:
            done, left = (", ".join(str(name) for name, _ in some) for some in (sources[:place], sources[place:]))
            said = f"imported before that: {done}; not imported: {left}" if place else "nothing was imported"
            raise type(error)(f"{error}; {said}") from error


def _imported(file: Path, added: dict[str, int], note: str) -> Row:
    counts = {table: added.get(table, 0) for table in ("trials", "best", "binaries")}
    return {"file": str(file), **counts, "added": added, "note": note}


def _templates(kernels: Path | None) -> list[str]:
    folder = kernels.resolve() if kernels else None
    return [sha for name in operation_names(folder) for sha in templates_here(load(name, folder)).values()]


def _chosen(size: str | None, dtype: str | None) -> dict[str, Any]:
    rows, cols = parse_size(size) if size is not None else (None, None)
    return {"rows": rows, "cols": cols, "dtype": element(dtype).name if dtype is not None else None}


def _write_trials(database: Database, trials: list[Row], t4_file: Path | None, optuna_file: Path | None) -> None:
    if t4_file:
        from autotune.database.t4 import document

        with new_file(t4_file) as partial:
            partial.write_text(json.dumps(document(database, trials), indent=1, allow_nan=False), encoding="utf-8")
        click.echo(f"{t4_file}: {counted(len(trials), 'result')}")
    if optuna_file:
        from autotune.database import optuna_storage

        studies = optuna_storage.export(trials, optuna_file)
        held = f"{counted(len(trials), 'trial')} in {counted(studies, 'study')}"
        click.echo(f"{optuna_file}: {held}; optuna-dashboard sqlite:///{optuna_file} shows them")
