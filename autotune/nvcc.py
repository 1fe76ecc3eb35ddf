"""NVIDIA's compiler, started directly: needs neither a GPU nor PyCUDA. The CUDA backend builds with the same flags.

compiler = find()
require(compiler, "sm_90")
binary, log = compile_cubin(text, "sm_90")
resources(log)["softmax_v2_float32_block256_unroll1"].registers
"""

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from autotune import compilers, source
from autotune.configuration import Configuration
from autotune.definition import Version
from autotune.errors import CompileError, UsageError
from autotune.trial import Failure, Instance, Outcome, Resources

# Never -use_fast_math: it changes every version at once and flushes denormal results. --resource-usage makes ptxas say what
# `resources` reads; it changes no code. No -lineinfo: cubins travel in databases.
FLAGS = ("-O3", "-std=c++17", "--resource-usage")

# CPU seconds per instance of v2-v4, one unit of 1, 2, 4, 8, 16 instances: 0.90, 0.53, 0.34, 0.24, 0.20 (CUDA 13.0, 2 shared cores).
INSTANCES_PER_UNIT = 8

Result = tuple[Configuration, Instance | Failure]


class Arch(NamedTuple):
    """A GPU architecture, such as (9, 0, "a") for sm_90a: the suffix marks code that runs on that one alone ("a") or its family ("f").

    >>> str(Arch(12, 0))
    'sm_120'
    """

    major: int
    minor: int
    suffix: str = ""

    def __str__(self) -> str:
        return f"sm_{self.major}{self.minor}{self.suffix}"


def parse_arch(name: str) -> Arch:
    """The architecture called `name`; its last digit is the minor number, however many come before.

    >>> parse_arch("sm_103"), parse_arch("sm_90a")
    (Arch(major=10, minor=3, suffix=''), Arch(major=9, minor=0, suffix='a'))

    Raises UsageError for anything else.
    """
    match = re.fullmatch(r"(?:sm|compute)_([1-9][0-9]?)([0-9])([af]?)", name)
    if not match:
        raise UsageError(f"architecture {name!r} is not like sm_90, sm_90a or sm_120; write sm_ and the compute capability without its dot")
    return Arch(int(match[1]), int(match[2]), match[3])


def find() -> str:
    """The path of nvcc: the first on PATH, else that of $CUDA_HOME, else that of NVIDIA's wheels in this Python.

    Raises UsageError when there is none.
    """
    home = os.environ.get("CUDA_HOME")
    folders = [Path(home) / "bin"] if home else []
    folders += sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/cu*/bin"), reverse=True)
    path = shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(map(str, folders)))
    if path is None:
        raise UsageError("nvcc is neither on PATH nor in $CUDA_HOME/bin; install the CUDA toolkit, or set CUDA_HOME to where it is")
    return path


@lru_cache(maxsize=8)
def version(compiler: str) -> str:
    """What the nvcc at `compiler` calls itself, such as "nvcc 13.0.88". Raises UsageError when it does not say."""
    match = re.search(r"\bV([0-9]+\.[0-9]+\.[0-9]+)", _asked(compiler, "--version"))
    if not match:
        raise UsageError(f"{compiler} is not NVIDIA's nvcc: it does not say its version; put the CUDA toolkit's nvcc first on PATH")
    return f"nvcc {match[1]}"


@lru_cache(maxsize=8)
def targets(compiler: str) -> tuple[Arch, ...]:
    """The architectures that the nvcc at `compiler` can build for, in ascending order."""
    return tuple(sorted({parse_arch(line) for line in re.findall(r"^sm_[0-9]+[af]?$", _asked(compiler, "--list-gpu-code"), re.MULTILINE)}))


def require(compiler: str, arch: str) -> None:
    """Raises UsageError unless the nvcc at `compiler` can build for `arch`."""
    wanted, offered = parse_arch(arch), targets(compiler)
    if wanted._replace(suffix="") not in offered:
        raise UsageError(
            f"{version(compiler)} cannot build for {arch}, only for {', '.join(map(str, offered))}; install a CUDA toolkit made for it"
        )


def compile_cubin(text: str, arch: str, flags: Sequence[str] = FLAGS) -> tuple[bytes, str]:
    """The cubin of the translation unit `text`, and what the compiler said.

    Raises CompileError with the compiler's first complaint, and UsageError when there is no nvcc or it cannot build for `arch`.
    """
    return _compile(text, arch, "--cubin", flags)


def compile_ptx(text: str, arch: str, flags: Sequence[str] = FLAGS) -> str:
    """The PTX of the translation unit `text`. Raises as `compile_cubin` does."""
    return _compile(text, arch, "--ptx", flags)[0].decode()


def compile_instances(
    version: Version,
    configurations: Iterable[Configuration],
    dtype: str,
    arch: str,
    jobs: int = 0,
    flags: Sequence[str] = FLAGS,
    per_unit: int = INSTANCES_PER_UNIT,
) -> Iterator[Result]:
    """Build instances, up to `per_unit` in one binary, with `jobs` compilers at once (one per core for 0); yields each as it is done.

    For an `arch` such as compute_75 the binary is PTX, which the driver of any GPU since then compiles when it loads it.

    A unit that does not compile is built again one instance at a time, so only the guilty ones fail. Raises UsageError as
    `compile_cubin` does.
    """
    require(find(), arch)
    wanted = list(configurations)
    jobs = jobs or os.cpu_count() or 1
    size = max(1, min(per_unit, -(-len(wanted) // jobs)))
    units = [wanted[i : i + size] for i in range(0, len(wanted), size)]
    return compilers.in_parallel(lambda unit: _unit(version, unit, dtype, arch, flags), units, jobs)


def resources(log: str) -> dict[str, Resources]:
    """What each entry takes, by symbol, as ptxas said it in `log`."""
    entries = re.split(r"Compiling entry function '(\w+)'", log)[1:]
    return {symbol: _resources(said) for symbol, said in zip(entries[::2], entries[1::2], strict=True)}


def complaint(log: str) -> str:
    """What the machine lacked, as the compiler said it in `log`, else the first error that it reported, else the last line it wrote."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(error|fatal)\b", line)]
    return (compilers.wants(log)[:1] or errors[:1] or lines[-1:] or ["nvcc failed and said nothing"])[0]


def _resources(said: str) -> Resources:
    def number(pattern: str) -> int:
        match = re.search(pattern, said)
        return int(match[1]) if match else 0

    return Resources(
        registers=number(r"Used (\d+) registers"),
        spill_bytes=number(r"(\d+) bytes spill stores"),
        local_bytes=max(number(r"(\d+) bytes stack frame"), number(r"(\d+) bytes cumulative stack size")),
        static_shared_bytes=number(r"(\d+) bytes smem"),
    )


def _unit(kernel: Version, unit: list[Configuration], dtype: str, arch: str, flags: Sequence[str]) -> list[Result]:
    try:
        kind = "--ptx" if arch.startswith("compute_") else "--cubin"
        binary, log = _compile(source.render(kernel, unit, dtype), arch, kind, flags)
    except CompileError as error:
        if len(unit) > 1:
            return [result for configuration in unit for result in _unit(kernel, [configuration], dtype, arch, flags)]
        return [(unit[0], Failure(Outcome.COMPILE_ERROR, str(error)))]
    takes = resources(log)
    symbols = {c: source.symbol(kernel, c, dtype) for c in unit}
    sha, said = source.read(kernel).sha, version(find())
    return [(c, Instance(c, dtype, arch, s, sha, " ".join(flags), said, binary, takes.get(s))) for c, s in symbols.items()]


def _compile(text: str, arch: str, kind: str, flags: Sequence[str]) -> tuple[bytes, str]:
    compiler = find()
    require(compiler, arch)
    with tempfile.TemporaryDirectory(prefix="autotune-nvcc-") as folder:
        written, built = Path(folder) / "kernels.cu", Path(folder) / "kernels.out"
        written.write_text(text, encoding="utf-8")
        done = compilers.run(
            [compiler, *flags, f"-arch={arch}", kind, "-o", str(built), str(written)],
            folder=Path(folder),
            env={**os.environ, "TMPDIR": folder},  # what nvcc leaves behind when it is killed goes with the folder
        )
        said = (done.stderr + done.stdout).decode(errors="replace")
        if done.status or not built.is_file():
            raise CompileError(complaint(said))
        return built.read_bytes(), said


def _asked(compiler: str, question: str) -> str:
    try:
        done = subprocess.run([compiler, question], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{compiler} could not be run ({error}); put the CUDA toolkit's nvcc first on PATH") from error
    return done.stdout
