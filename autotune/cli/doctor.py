"""`autotune doctor`: what is here, what is missing, and what to do about it."""

import importlib.util
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from autotune import __version__
from autotune.backends.select import gpu_count
from autotune.catalogue import operation_names
from autotune.cli.options import db_option
from autotune.cli.output import Column, Form, Row, counted, emit, on_device, reading
from autotune.database import Database, default_path, shipped_databases
from autotune.errors import AutotuneError, installing

# name, module, distribution, what it is for, how to get it
PACKAGES = (
    (
        "PyCUDA",
        "pycuda",
        "pycuda",
        "tuning on a GPU",
        f"{installing('cuda')}; where PyCUDA does not build by itself, first: python scripts/install_pycuda.py",
    ),
    ("cuda-bindings", "cuda.bindings", "cuda-bindings", "dispatch on a GPU", installing("run")),
    ("nvidia-ml-py", "pynvml", "nvidia-ml-py", "the clocks of a GPU", installing("cuda")),
    ("vl-convert", "vl_convert", "vl-convert-python", "autotune report", installing("report")),
)

COLUMNS = (
    Column("what", "what", right=False),
    Column("state", "state", right=False),
    Column("said", "what was found", right=False, long=True, named=False),
)


@click.command("doctor")
@db_option
@reading
def doctor_command(db: Path | None, form: Form) -> int:
    """Check everything that autotune uses. Exit status 1 when something that is here does not work."""
    rows = [
        _row("autotune", "ok", f"{__version__} on Python {platform.python_version()}, operations: {', '.join(operation_names())}"),
        _asked("database", lambda: _database(db or default_path())),
        *[_asked(f"shipped {path.name}", lambda path=path: _database(path)) for path in shipped_databases()],  # type: ignore[misc]
        _asked("emulator", _emulator),
        _asked("nvcc", _nvcc),
        *[_package(*package) for package in PACKAGES],
        *_gpu(),
    ]
    emit(rows, COLUMNS, form)
    return 1 if any(row["state"] == "broken" for row in rows) else 0


def _row(what: str, state: str, said: str) -> Row:
    return {"what": what, "state": state, "said": said}


def _asked(what: str, ask: Callable[[], tuple[str, str]]) -> Row:
    try:
        return _row(what, *ask())
    except AutotuneError as error:
        return _row(what, "missing", str(error))
    except Exception as error:
        return _row(what, "broken", f"{type(error).__name__}: {error}")


def _database(path: Path) -> tuple[str, str]:
    if not path.exists():
        return "missing", f"{path} does not exist yet; autotune sweep makes it"
    try:
        with Database(path, mode="read") as database:
            found = database.devices()
            names = (on_device(row["device"], row["replayed"] and row["replayed"] == row["problems"]) for row in found)
            tuned = counted(sum(row["problems"] for row in found), "problem")
            return "ok", f"{path}: {tuned} tuned on {', '.join(dict.fromkeys(names)) or 'no device'}"
    except AutotuneError as error:
        return "broken", str(error)


def _package(name: str, module: str, distribution: str, purpose: str, how: str) -> Row:
    """A package that only some commands need: there with its version, there and broken, or missing."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # the package that should hold it
        found = None
    if found is None:
        return _row(name, "missing", f"for {purpose}: {how}")
    try:
        return _row(name, "ok", f"{version(distribution)}, for {purpose}")
    except PackageNotFoundError:
        return _row(name, "broken", f"module {module} is here but not installed as {distribution}, for {purpose}: {how}")


def _emulator() -> tuple[str, str]:
    from autotune.backends.emulation import build

    return "ok", f"{build.compiler_version()}"


def _nvcc() -> tuple[str, str]:
    from autotune import nvcc

    return "ok", nvcc.version(nvcc.find())


def _gpu() -> list[Row]:
    if not gpu_count():
        return [_row("CUDA GPU", "missing", "the CUDA driver sees none; the emulator and recorded measurements work without one")]
    if importlib.util.find_spec("pycuda") is None:
        found = counted(gpu_count(), "GPU")
        return [_row("CUDA GPU", "ok", f"the CUDA driver sees {found}; install PyCUDA to see what they are and whether they work")]
    from autotune.backends.cuda import describe

    return [
        _row(f"GPU {ordinal}" if name == "GPU" else f"GPU {ordinal}: {name}", "ok" if works else "broken", said)
        for ordinal in range(gpu_count())
        for name, works, said in describe(ordinal)
    ]
