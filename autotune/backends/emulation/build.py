"""From rendered CUDA source to a shared library for this CPU, through g++ and a cache."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Literal

from autotune import compilers
from autotune.errors import CompileError, UsageError

Sanitizer = Literal["none", "thread", "address"]

ANSWER_TIMEOUT_S = 60
HERE = Path(__file__).resolve().parent
_RUNTIME_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra")
# Each check ends a launch with a sentence (see cuda_on_cpu.cpp). -fno-gnu-unique: a library's static variables are its own.
_KERNEL_FLAGS = (
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-gnu-unique",
    "-Wno-unknown-pragmas",
    "-DAUTOTUNE_EMULATOR",
    "-fsanitize=alignment,bounds,signed-integer-overflow,integer-divide-by-zero",
    "-fno-sanitize-recover=all",
)
_SANITIZER_FLAGS: dict[Sanitizer, tuple[str, ...]] = {
    "none": (),
    "thread": ("-g1", "-fsanitize=thread"),
    "address": ("-g1", "-fsanitize=address"),
}


def flags(sanitizer: Sanitizer = "none") -> tuple[str, ...]:
    """The compiler's flags for a library of kernels."""
    return (*_KERNEL_FLAGS, *_SANITIZER_FLAGS[sanitizer])


@lru_cache(maxsize=1)
def compiler() -> str:
    """The path of the C++ compiler: $CXX, else g++. Raises UsageError when there is none."""
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    if path is None:
        raise UsageError(f"no C++ compiler {name} was found; the emulator needs one: install g++ or set CXX")
    return path


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """What the compiler calls itself, such as "g++ (Debian 12.2.0-14) 12.2.0"."""
    asked = [compiler(), "--version"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=ANSWER_TIMEOUT_S).stdout.splitlines()[0]
    except (subprocess.SubprocessError, OSError, IndexError) as error:
        raise UsageError(
            f"the C++ compiler {asked[0]} does not say its version ({type(error).__name__}); install g++ or set CXX"
        ) from error


def cache_folder() -> Path:
    """Where built libraries are kept: emulator/ under $AUTOTUNE_CACHE, else under the user's cache folder."""
    from platformdirs import user_cache_dir

    folder = Path(os.environ.get("AUTOTUNE_CACHE") or user_cache_dir("autotune")) / "emulator"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise UsageError(f"the cache folder {folder} cannot be written ({error.strerror}); set AUTOTUNE_CACHE to another") from error


def library(source: str, sanitizer: Sanitizer = "none") -> Path:
    """The shared library of the kernels in `source`, built unless it is in the cache.

    Raises CompileError with the compiler's first complaint, and UsageError when there is no compiler.
    """
    return _built(source, _included(sanitizer), ())


def kept(source: str) -> Path | None:
    """The library in the cache that has the kernels of `source`, alone or beside others; None where none has."""
    target = _target(source, _included(), ())
    return target.resolve() if target.exists() else None


def keep(source: str, library: Path) -> None:
    """Have `library`, which is in the cache, found for `source` too: others' kernels are in it beside those of `source`."""
    target = _target(source, _included(), ())
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            link = Path(folder) / target.name
            link.symlink_to(library.name)
            link.replace(target)


def runtime() -> Path:
    """The library that schedules fibers; kernels' libraries find its functions when it is loaded first, globally."""
    return _built((HERE / "cuda_on_cpu.cpp").read_text(), (*_RUNTIME_FLAGS, "-I", str(HERE)), ("-Wl,-soname,libcuda_on_cpu.so",))


def store(binary: bytes) -> Path:
    """The library whose bytes are `binary`, as a file in the cache."""
    target = cache_folder() / f"{hashlib.sha256(binary).hexdigest()[:32]}.so"
    if not target.exists():
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
            file.write(binary)
        Path(file.name).replace(target)
    return target


@lru_cache(maxsize=1)
def _vocabulary() -> str:
    return "".join(path.read_text() for path in sorted(HERE.glob("*.h")))


def _included(sanitizer: Sanitizer = "none") -> tuple[str, ...]:
    return (*flags(sanitizer), "-I", str(HERE), "-include", str(HERE / "cuda_on_cpu.h"))


def _target(source: str, compile_flags: tuple[str, ...], link_flags: tuple[str, ...]) -> Path:
    what = "\0".join((source, _vocabulary(), *compile_flags, *link_flags, compiler_version()))
    return cache_folder() / f"{hashlib.sha256(what.encode()).hexdigest()[:32]}.so"


def _built(source: str, compile_flags: tuple[str, ...], link_flags: tuple[str, ...]) -> Path:
    command = compiler()
    target = _target(source, compile_flags, link_flags)
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        written, compiled, linked = (Path(folder) / name for name in ("kernels.cu", "kernels.o", "kernels.so"))
        written.write_text(source, encoding="utf-8")
        _run(Path(folder), command, *compile_flags, "-x", "c++", "-c", str(written), "-o", str(compiled))
        # Linked without the sanitizers' flags: our runtime answers their calls, or the preloaded sanitizer library does.
        _run(Path(folder), command, "-shared", *link_flags, str(compiled), "-o", str(linked))
        linked.replace(target)
    return target


def _run(folder: Path, *command: str) -> None:
    # TMPDIR: the assembler's input, which g++ leaves behind when it is killed, goes with the folder.
    done = compilers.run(command, folder=folder, env={**os.environ, "TMPDIR": str(folder)})
    if done.status:
        said = done.stderr.decode(errors="replace")
        lines = [line for line in said.splitlines() if line]
        errors = [line for line in lines if ": error: " in line or ": fatal error: " in line]
        raise CompileError((compilers.wants(said) or errors or lines or [f"{command[0]} ended with status {done.status}"])[0])
