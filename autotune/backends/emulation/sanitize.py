"""Launches under ThreadSanitizer or AddressSanitizer, in a child process into which the sanitizer's library is preloaded.

ThreadSanitizer knows which accesses the barriers order, so it finds a race without a lucky schedule, also between blocks that merely
happen to run one after another. AddressSanitizer sees the ends of every array, shared or global.
"""

import ctypes
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from autotune.backends.emulation import build
from autotune.backends.emulation.run import Argument, Array, Launch, Library
from autotune.errors import KernelError

_LIBRARIES = {"thread": "libtsan.so", "address": "libasan.so"}
_OPTIONS = {
    # Python and the runtime are not instrumented; and the next launch may find another race at the same address.
    "thread": "exitcode=0:history_size=4:ignore_noninstrumented_modules=1:suppress_equal_addresses=0",
    "address": "exitcode=0:detect_leaks=0",
}
_HEADLINE = re.compile(r"(?:WARNING|ERROR): (?:Thread|Address)Sanitizer: ([a-z-]+(?: [a-z]+)*)")
_STACK = re.compile(r"^ +(?:(?:Previous )?(?:atomic )?(?:[Rr]ead|[Ww]rite)|READ|WRITE) of size|^(?:READ|WRITE) of size")
_FRAME = re.compile(r"^ +#\d+ .*? (\S+):(\d+)(?::\d+)?(?: \(.*\))?$")
_PLACE = re.compile(r"^(\S+):(\d+): ")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a template, as its `#line` directives name it. (To a file that is named without a folder, debug information adds one.)"""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Report:
    """One thing that a sanitizer or the emulator found: what it calls it, the accesses involved, and its words."""

    kind: str
    places: tuple[Place, ...]
    text: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.kind} at " + " and ".join(f"{place.file}:{place.line}" for place in self.places)


@dataclass(frozen=True, slots=True)
class _Memory:
    """An array's bytes, from its first element to its last, and how far past a multiple of 16 they start."""

    data: bytes
    offset: int


def sanitize(sanitizer: Literal["thread", "address"], source: str, launches: Iterable[Launch]) -> list[Report]:
    """Run `launches` of the kernels in `source` one after another and return all that was found; arrays here stay as they are.

    AddressSanitizer ends at its first finding. Raises KernelError when the child dies of something else.
    """
    library, runtime = build.library(source, sanitizer), build.runtime()
    job = pickle.dumps((library, runtime, _portable(launches)))
    with tempfile.TemporaryDirectory() as folder:
        done = _run(sanitizer, job, Path(folder))
        logs = "\n".join(path.read_text(errors="replace") for path in sorted(Path(folder).iterdir()))
    reports = parse(logs)
    if done.returncode or not done.stdout:
        if not reports:
            last = (done.stderr.decode(errors="replace").strip().splitlines() or ["nothing"])[-1]
            raise KernelError(f"the process under {_LIBRARIES[sanitizer]} ended with status {done.returncode} and said: {last}")
        return reports
    failures: list[tuple[str, str]] = pickle.loads(done.stdout)
    return reports + [_failure(kind, text) for kind, text in failures]


def parse(logs: str) -> list[Report]:
    """The reports in what a sanitizer wrote, each with the template line of every access it shows a stack of."""
    starts = [match.start() for match in _HEADLINE.finditer(logs)]
    reports = []
    for start, end in pairwise([*starts, len(logs)]):
        text = logs[start:end]
        headline = _HEADLINE.match(text)
        assert headline is not None
        reports.append(Report(headline[1].removesuffix(" on address"), _places(text), text.strip()))
    return reports


def serve() -> None:
    """The child's side: a job on standard input, what the emulator itself found on standard output."""
    path, runtime, launches = pickle.load(sys.stdin.buffer)
    library = Library(path, runtime)
    failures = []
    for launch in launches:
        try:
            library.launch(replace(launch, arguments=_allocated(launch.arguments)))
        except KernelError as error:
            failures.append((type(error).__name__.removesuffix("Error").lower(), str(error)))
    sys.stdout.buffer.write(pickle.dumps(failures))
    sys.stdout.buffer.flush()
    os._exit(0)  # the interpreter's own teardown is no business of the sanitizer


def _run(sanitizer: Literal["thread", "address"], job: bytes, folder: Path) -> "subprocess.CompletedProcess[bytes]":
    found = subprocess.run([build.compiler(), f"-print-file-name={_LIBRARIES[sanitizer]}"], capture_output=True, text=True, check=True)
    options = f"{_OPTIONS[sanitizer]}:log_path={folder / 'log'}"
    env = {**os.environ, "LD_PRELOAD": found.stdout.strip(), "TSAN_OPTIONS": options, "ASAN_OPTIONS": options}
    program = f"import sys; sys.path[:] = {sys.path!r}; from autotune.backends.emulation.sanitize import serve; serve()"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=job, env=env, capture_output=True)
    # Where addresses are randomised by more bits than the sanitizer's library knows of, it refuses to start.
    refused = b"unexpected memory mapping" in done.stderr or any("unexpected memory mapping" in log.read_text() for log in folder.iterdir())
    if refused and (setarch := shutil.which("setarch")):
        for log in folder.iterdir():
            log.unlink()
        done = subprocess.run([setarch, "--addr-no-randomize", *command], input=job, env=env, capture_output=True)
    return done


def _places(text: str) -> tuple[Place, ...]:
    places: list[Place] = []
    searching = False
    for line in text.splitlines():
        if _STACK.match(line):
            searching = True
        elif searching and (frame := _FRAME.match(line)) and Path(frame[1]).parent != build.HERE:
            places.append(Place(frame[1], int(frame[2])))
            searching = False
    return tuple(places)


def _failure(kind: str, text: str) -> Report:
    place = _PLACE.match(text)
    return Report(kind, (Place(place[1], int(place[2])),) if place else (), text)


def _portable(launches: Iterable[Launch]) -> list[Launch]:
    """`launches` with every array as a `_Memory`, the same one wherever the same array is passed."""
    memories: dict[int, _Memory] = {}

    def portable(argument: Argument) -> Any:
        if not isinstance(argument, np.ndarray):
            return argument
        if id(argument) not in memories:
            memories[id(argument)] = _memory(argument)
        return memories[id(argument)]

    return [replace(launch, arguments=[portable(argument) for argument in launch.arguments]) for launch in list(launches)]


def _memory(array: Array) -> _Memory:
    if array.size == 0:
        return _Memory(b"", 0)
    extent = sum((length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True)) + array.itemsize
    return _Memory(ctypes.string_at(array.ctypes.data, extent), array.ctypes.data % 16)


def _allocated(arguments: Sequence[Any]) -> list[Any]:
    """`arguments` with each `_Memory` as memory that ends where the array ends, so that AddressSanitizer knows its end."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    made: dict[int, Any] = {}

    def allocated(argument: Any) -> Any:
        if not isinstance(argument, _Memory):
            return argument
        if id(argument) not in made:
            address = libc.malloc(argument.offset + len(argument.data)) + argument.offset
            ctypes.memmove(address, argument.data, len(argument.data))
            made[id(argument)] = np.uint64(address)
        return made[id(argument)]

    return [allocated(argument) for argument in arguments]
