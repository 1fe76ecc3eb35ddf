"""`autotune pin`, `unpin`, `block`, `unblock`: what a person decides about kernels, whatever the times say."""

import getpass
import re
from pathlib import Path
from typing import Any

import click

from autotune import source
from autotune.cli.hints import hint
from autotune.cli.options import db_option, dtype_of, dtype_option, kernels_option, operation_of, size_option
from autotune.cli.output import counted, say
from autotune.cli.running import Running, Runs, told
from autotune.configuration import Configuration, Value
from autotune.database import Database, default_path, shipped_databases
from autotune.database.decide import require_text
from autotune.database.rebuild import templates_here
from autotune.device import EMULATOR, Device
from autotune.errors import UsageError
from autotune.operation import Operation
from autotune.problem import Problem, parse_size

Range = tuple[int, int]


def _about(command: Any) -> Any:
    command = click.option("--device", metavar="NAME", help="Such as 'NVIDIA H200'.  [default: the only GPU in the database]")(command)
    return db_option(kernels_option(dtype_option(command)))


@click.command("pin")
@click.argument("operation")
@click.argument("sizes", metavar="MxN[..MxN]")
@click.argument("configuration")
@click.option("--why", required=True, help="The reason, for whoever finds the pin.")
@click.option("--author", help="Who decides this.  [default: your user name]")
@_about
def pin_command(
    operation: str,
    sizes: str,
    configuration: str,
    why: str,
    author: str | None,
    device: str | None,
    dtype: str | None,
    db: Path | None,
    kernels: Path | None,
) -> None:
    """Use CONFIGURATION for OPERATION at a size, or at all sizes from MxN to MxN, ends included, whatever was measured.

    CONFIGURATION is written as inspect shows it: 'v3 block 384, vector 4, unroll 4'. Where it cannot run a call, the dispatcher goes on
    to what it would take without the pin. A newer pin of the same sizes replaces an older one. The database is made where there is none.
    """
    loaded = operation_of(operation, kernels)
    name = dtype_of(loaded, dtype)
    rows, cols = parse_range(sizes)
    chosen = parse_configuration(loaded, configuration)
    path = db or default_path()
    with Database(path, create=True) as database:
        found = known_device(database, device)
        ends = [Problem(operation, *size, name) for size in dict.fromkeys((m, n) for m in rows for n in cols)]
        refusals = [loaded.applicable(chosen, problem, found).why for problem in ends]
        if all(refusals):
            raise UsageError(f"{chosen} cannot run {operation} {sizes} {name} on {found.name}: {refusals[0]}; pin another")
        before = Running(loaded, found, name, path).at_tuned_sizes(ends)
        database.pin(found, operation, name, rows, cols, chosen, author=author or _user(), why=why)
    say(f"pinned {operation} {sizes} {name} on {found.name} to {chosen}")
    _tell(before, Running(loaded, found, name, path), ends, found)


@click.command("unpin")
@click.argument("operation")
@click.argument("sizes", metavar="MxN[..MxN]")
@_about
def unpin_command(operation: str, sizes: str, device: str | None, dtype: str | None, db: Path | None, kernels: Path | None) -> None:
    """Take a pin away: the one of exactly these sizes."""
    loaded = operation_of(operation, kernels)
    name = dtype_of(loaded, dtype)
    rows, cols = parse_range(sizes)
    path = db or default_path()
    with Database(path) as database:
        found = known_device(database, device)
        ends = [Problem(operation, *size, name) for size in dict.fromkeys((m, n) for m in rows for n in cols)]
        before = Running(loaded, found, name, path).at_tuned_sizes(ends)
        if not database.unpin(found, operation, name, rows, cols):
            raise UsageError(f"{operation} {sizes} {name} has no pin on {found.name}; `{hint('inspect', 'pins')}` lists what is pinned")
    say(f"{operation} {sizes} {name} on {found.name} is no longer pinned")
    _tell(before, Running(loaded, found, name, path), ends, found)


@click.command("block")
@click.argument("operation")
@click.argument("configuration")
@click.option("--why", required=True, help="The reason, for whoever finds the block.")
@size_option
@_about
def block_command(
    operation: str,
    configuration: str,
    why: str,
    size: str | None,
    device: str | None,
    dtype: str | None,
    db: Path | None,
    kernels: Path | None,
) -> None:
    """Neither try nor select CONFIGURATION for OPERATION, or with --size only there.

    That holds until its template or definition changes or autotune unblock lets it go. What runs now in its place is said, and what must be
    compiled first. The database is made where there is none.
    """
    require_text("reason", why)
    loaded = operation_of(operation, kernels)
    name = dtype_of(loaded, dtype)
    chosen = parse_configuration(loaded, configuration)
    problem = Problem(operation, *parse_size(size), name) if size else None
    if chosen == loaded.safe:
        raise UsageError(f"{chosen} is the kernel of last resort of {operation}, which cannot be blocked; block another")
    path, asked = db or default_path(), [problem] if problem else []
    with Database(path, create=True) as database:
        found = known_device(database, device)
        before = Running(loaded, found, name, path).at_tuned_sizes(asked)
        template = source.read(loaded.version(chosen.version))
        database.add_template(operation, chosen.version, template)
        database.block(found, operation, chosen, template.sha, name, why, problem)
        settled = _settled_again(database, found, loaded, chosen, name, problem)
    say(f"blocked {chosen} for {problem or f'{operation} {name}'} on {found.name}{settled}")
    _tell(before, Running(loaded, found, name, path), asked, found)


@click.command("unblock")
@click.argument("operation")
@click.argument("configuration", required=False)
@click.option("--all", "every", is_flag=True, help="Every configuration that is blocked, in place of one.")
@size_option
@_about
def unblock_command(
    operation: str,
    configuration: str | None,
    every: bool,
    size: str | None,
    device: str | None,
    dtype: str | None,
    db: Path | None,
    kernels: Path | None,
) -> None:
    """Let a blocked CONFIGURATION be tried and selected again; with --size only where it was blocked for that size alone.

    What it failed at before counts no more: the next sweep tries it anew, and blocks it again when it fails twice. Its trials stay.
    """
    loaded = operation_of(operation, kernels)
    name = dtype_of(loaded, dtype)
    if every == (configuration is not None):
        raise UsageError(f"name one CONFIGURATION to unblock, or give --all for every one; `{hint('inspect', 'blocked')}` lists them")
    chosen = parse_configuration(loaded, configuration) if configuration is not None else None
    problem = Problem(operation, *parse_size(size), name) if size else None
    path, asked = db or default_path(), [problem] if problem else []
    with Database(path) as database:
        found = known_device(database, device)
        before = Running(loaded, found, name, path).at_tuned_sizes(asked)
        timed = database.blocked_though_timed(found, operation, chosen, name, problem, set(templates_here(loaded).values()))
        count = database.unblock(found, operation, chosen, name, problem)
        if not count:
            where = f"for {size} alone on {found.name}" if size else f"on {found.name}"
            what = f"{chosen} is not blocked" if chosen else f"no configuration of {operation} {name} is blocked"
            raise UsageError(f"{what} {where}; `{hint('inspect', 'blocked')}` lists what is")
        settled = _settled_again(database, found, loaded, chosen, name, problem)
    what, which = (str(chosen), "it") if chosen else (counted(count, "configuration"), "it" if count == 1 else "them")
    then = f"and the next sweep tries {which} again"
    if timed == count:
        then = f"by {'its' if count == 1 else 'their'} times, so no sweep need try {which} again"
    elif timed:
        then += f", but for {timed} that {'has a time' if timed == 1 else 'have times'} already"
    say(f"{what} may be selected again on {found.name}, {then}{settled}")
    _tell(before, Running(loaded, found, name, path), asked, found)


def parse_range(text: str) -> tuple[Range, Range]:
    """The ranges of rows and of columns written as `MxN` or `MxN..MxN`.

    >>> parse_range("1x1024..4096x8192")
    ((1, 4096), (1024, 8192))

    Raises UsageError for anything else, and for a range that ends before it begins.
    """
    first, _, last = text.partition("..")
    (rows, cols), (most_rows, most_cols) = parse_size(first), parse_size(last or first)
    if rows > most_rows or cols > most_cols:
        raise UsageError(f"sizes {text!r} end before they begin; write the smaller rows and columns first, like 1x1024..4096x8192")
    return (rows, most_rows), (cols, most_cols)


def parse_configuration(operation: Operation, text: str) -> Configuration:
    """The configuration written as `v3 block 384, vector 4, unroll 4`; `=`, `:` and commas may stand for the blanks.

    Raises UsageError unless it names a version and one of the declared values for each of its parameters.
    """
    version, *words = [word for word in re.split(r"[\s,:=]+", text) if word] or [""]
    declared = operation.version(version).parameters
    given = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or set(given) != set(declared) or len(given) != len(words) // 2:
        raise UsageError(f"configuration {text!r} does not name each parameter of {version} once; write '{_example(version, declared)}'")
    chosen: dict[str, Value] = {}
    for name, values in declared.items():
        by_text = {str(value): value for value in values}
        if given[name] not in by_text:
            raise UsageError(f"{name} {given[name]!r} is not a value of {operation.name} {version}; use {', '.join(by_text)}")
        chosen[name] = by_text[given[name]]
    return Configuration.of(version, **chosen)


def known_device(database: Database, name: str | None) -> Device:
    """The device called `name` in `database` or in a shipped one; without a name the only GPU, or device, that `database` has.

    Raises UsageError otherwise.
    """
    devices = {device.name: device for device in database.devices_measured()}
    if name is None:
        gpus = [device for device in devices.values() if not device.is_emulator]
        if len(gpus) == 1:
            return gpus[0]
        if len(devices) == 1:  # the emulator, and nothing is said of any other
            return next(iter(devices.values()))
    for path in shipped_databases():
        with Database(path, mode="read") as shipped:
            devices = {device.name: device for device in shipped.devices_measured()} | devices
    devices.setdefault(EMULATOR.name, EMULATOR)
    if name in devices:
        return devices[name]
    known = ", ".join(sorted(devices))
    raise UsageError(f"device {name!r} is not known; use one of {known}" if name else f"say which device this is about: --device {known}")


def _settled_again(
    database: Database, device: Device, operation: Operation, configuration: Configuration | None, dtype: str, problem: Problem | None
) -> str:
    """Settle every problem at which `configuration`, or any that is or was blocked, was tried; how many these are, as a sentence's end."""
    touched = database.touched(device, operation.name, configuration, dtype, problem)
    done = database.rebuild({operation.name: operation}, only=touched)
    were = "was" if done.settled == 1 else "were"
    return f"; {counted(done.settled, 'problem')} that this may change {were} settled again" if done.settled else ""


def _tell(before: Runs, now: Running, asked: list[Problem], device: Device) -> None:
    for sentence in told(before, now, asked, device):
        click.echo(sentence) if sentence.startswith("autotune ") else say(sentence)  # a command is copied, and stays on one line


def _example(version: str, declared: Any) -> str:
    return str(Configuration(version, tuple((name, values[0]) for name, values in declared.items())))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
