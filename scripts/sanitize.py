"""Runs NVIDIA's compute-sanitizer over small launches of every version of softmax and element type, and prints a table.

    python scripts/sanitize.py                                   memcheck, racecheck, synccheck and initcheck
    python scripts/sanitize.py --tool racecheck --version v10

Needs a GPU, nvcc, compute-sanitizer, NumPy and cuda-bindings. Each tool watches a process per version, which launches instances on
matrices allocated to the byte and compares what they compute with the float64 reference. Together they have every value of `hold`,
`edges`, `stash` and `cluster`, and long, short, odd and even rows. Planted faults must be found: a kernel without its barriers, an output
that is too small, an input never written.

Exit status: 0 when nothing was found but what was planted, 1 when something was, 2 when it could not start.
"""

import json
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from autotune import catalogue, check, nvcc, source
from autotune.configuration import Configuration
from autotune.device import Device
from autotune.dispatch.cuda_driver import Cuda
from autotune.dispatch.cuda_launcher import CudaFunction, CudaLauncher
from autotune.errors import UsageError
from autotune.problem import Problem
from autotune.trial import Failure, Instance

SOFTMAX = catalogue.load("softmax")
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
# Few columns, odd ones, whole packs, mostly with a row of each kind of input; then rows for warps, for clusters, for several blocks,
# and rows that no chip holds.
SIZES = (
    *((35, 2), (35, 7), (9, 33), (37, 64), (9, 200), (9, 1000), (9, 1001), (9, 4095), (9, 8192)),
    *((4, 32768), (4, 32771), (2, 131072), (2, 131075), (2, 300000), (2, 300001)),
)
COVERED = ("hold", "edges", "stash", "cluster")
TIMEOUT_S = 240
LAUNCHED = "launched "
# What a line of a tool's log begins with that says something is wrong: with the program, or with the tool.
FINDING = re.compile(
    "Error: |Warning: |Invalid |Uninitialized |Misaligned |Barrier error|Divergent |Race reported|Program hit "
    "|Fatal|Internal|Device not supported|Target application"
)
PLANTS = {"memcheck": "output too small", "racecheck": "no barriers", "initcheck": "input never written"}


@dataclass(frozen=True)
class Case:
    """One launch. `plant` says what is wrong with it on purpose, "" for nothing."""

    instance: Instance
    problem: Problem
    plant: str = ""


@dataclass(frozen=True)
class Watched:
    """What one tool said about one process: its findings, the launches that came to an end, and those whose result was wrong."""

    findings: tuple[str, ...]
    launched: int
    wrong: tuple[str, ...]
    log: str


@click.command()
@click.option("--tool", "tools", multiple=True, type=click.Choice(TOOLS), help="May be repeated; all without it.")
@click.option("--version", "versions", multiple=True, metavar="vK", help="May be repeated; all without it.")
@click.option("--dtype", "dtypes", multiple=True, help="May be repeated; all without it.")
@click.option("--logs", type=click.Path(path_type=Path), help="A folder for what the tools wrote.")
@click.option("--jobs", default=8, show_default=True, help="Processes on the GPU at once.")
@click.option("--launch", "cases_file", type=click.Path(exists=True, path_type=Path), hidden=True)
def main(
    tools: tuple[str, ...], versions: tuple[str, ...], dtypes: tuple[str, ...], logs: Path | None, jobs: int, cases_file: Path | None
) -> None:
    """Watch every version of softmax with compute-sanitizer."""
    if cases_file:
        launch_all(pickle.loads(cases_file.read_bytes()))
        return
    try:
        sanitizer, device = find_sanitizer(), Cuda().device(0)
        nvcc.require(nvcc.find(), device.arch)
    except UsageError as error:
        raise SystemExit(_refused(str(error))) from None
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sanitize-") as named:
        folder = Path(named)
        groups = written(folder, device, versions or tuple(SOFTMAX.versions), dtypes or SOFTMAX.dtypes)
        print(f"{sum(groups.values())} launches compiled in {time.monotonic() - started:.0f} s", flush=True)
        pairs = [(tool, name) for tool in tools or TOOLS for name in groups if not name.startswith("planted-") or name.endswith(tool)]
        with ThreadPoolExecutor(jobs) as pool:
            seen = dict(zip(pairs, pool.map(lambda pair: watch(sanitizer, pair[0], pair[1], folder), pairs), strict=True))
    if logs:
        logs.mkdir(parents=True, exist_ok=True)
        for (tool, name), watched in seen.items():
            (logs / f"{tool}-{name}.txt").write_text(watched.log)
    print(table(seen, groups))
    print(f"{time.monotonic() - started:.0f} s in all")
    raise SystemExit(1 if complaints(seen, groups) else 0)


def find_sanitizer() -> str:
    """The path of compute-sanitizer. Raises UsageError when it is neither on PATH nor beside nvcc."""
    path = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=str(Path(nvcc.find()).resolve().parent))
    if path is None:
        raise UsageError("compute-sanitizer is neither on PATH nor beside nvcc; install the CUDA toolkit's sanitizer")
    return path


def _refused(why: str) -> int:
    print(why, file=sys.stderr)
    return 2


def chosen(version: str, dtype: str, device: Device) -> list[tuple[Configuration, Problem]]:
    """Small launches of a version that together have every value of the parameters in COVERED, and long, short, odd and even rows."""
    found = SOFTMAX.version(version)
    everything = found.configurations()
    order = [everything[i] for i in np.random.default_rng(0).permutation(len(everything))]
    met: set[tuple[str, Any]] = set()
    picked = []
    for rows, cols in SIZES:
        problem = Problem("softmax", rows, cols, dtype)
        for configuration in order:
            values: set[tuple[str, Any]] = {(name, value) for name, value in configuration.parameters if name in COVERED}
            values |= {("long", cols >= 1000), ("odd", cols % 8 > 0)}
            if not values <= met and found.applicable(configuration, problem, device):
                met |= values
                picked.append((configuration, problem))
    return picked


def written(folder: Path, device: Device, versions: Sequence[str], dtypes: Sequence[str]) -> dict[str, int]:
    """Compiles the cases of each version, and the planted ones, into files of `folder`; how many each holds. Raises Failure."""
    wanted = {version: [(c, p) for dtype in dtypes for c, p in chosen(version, dtype, device)] for version in versions}
    keys = list(dict.fromkeys((c, p.dtype) for pairs in wanted.values() for c, p in pairs))
    with ThreadPoolExecutor() as pool:
        instances = dict(zip(keys, pool.map(lambda key: compiled(key[0], key[1], device.arch), keys), strict=True))
    groups = {version: [Case(instances[c, p.dtype], p) for c, p in pairs] for version, pairs in wanted.items()}
    groups = {version: cases for version, cases in groups.items() if cases}
    groups |= {f"planted-for-{tool}": [planted(plant, device)] for tool, plant in PLANTS.items()}
    for name, cases in groups.items():
        (folder / name).write_bytes(pickle.dumps(cases))
    return {name: len(cases) for name, cases in groups.items()}


def compiled(configuration: Configuration, dtype: str, arch: str) -> Instance:
    [(_, result)] = nvcc.compile_instances(SOFTMAX.version(configuration.version), [configuration], dtype, arch, jobs=1)
    if isinstance(result, Failure):
        raise result
    return result


def planted(plant: str, device: Device) -> Case:
    """A launch of v3 with that fault, which its tool must find."""
    version = SOFTMAX.version("v3")
    configuration = Configuration.of("v3", block=128, vector=1, unroll=1)
    text = source.render(version, [configuration], "float32")
    if plant == "no barriers":
        text = text.replace("__syncthreads();", ";")
    binary, _ = nvcc.compile_cubin(text, device.arch)
    symbol = source.symbol(version, configuration, "float32")
    instance = Instance(configuration, "float32", device.arch, symbol, "", "", "", binary, None)
    return Case(instance, Problem("softmax", 9, 1001), plant)


def watch(sanitizer: str, tool: str, name: str, folder: Path) -> Watched:
    """What `tool` finds in a process that makes the launches of the file `name`."""
    log = folder / f"{tool}-{name}.log"
    command = [sanitizer, "--tool", tool, "--log-file", str(log), sys.executable, __file__, "--launch", str(folder / name)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        output, said = done.stdout, done.stderr[-2000:]
    except subprocess.TimeoutExpired:
        output, said = "", f"stopped after {TIMEOUT_S} s"
    lines = [json.loads(line.removeprefix(LAUNCHED)) for line in output.splitlines() if line.startswith(LAUNCHED)]
    text = log.read_text() if log.is_file() else ""
    wrong = tuple(f"{line['symbol']} at {line['size']}: {line['wrong']}" for line in lines if line["wrong"])
    return Watched(tuple(findings(text)), len(lines), wrong, f"{text}\n{output}\n{said}")


def findings(log: str) -> Iterator[str]:
    """The tool's findings, the first line of each."""
    for line in log.splitlines():
        text = line.removeprefix("=========").strip()
        if FINDING.match(text):
            yield text


def complaints(seen: dict[tuple[str, str], Watched], groups: dict[str, int]) -> list[str]:
    """What is wrong, one sentence each: findings that nobody planted, plants that were not found, launches that never came back."""
    told = []
    for (tool, name), watched in seen.items():
        if name.startswith("planted-"):
            if not watched.findings:
                told.append(f"{tool} did not find the planted fault: {PLANTS[tool]}")
            continue
        told += [f"{tool} {name}: {text}" for text in dict.fromkeys((*watched.findings, *watched.wrong))]
        if watched.launched != groups[name]:
            told.append(f"{tool} {name}: only {watched.launched} of {groups[name]} launches came to an end")
    return told


def table(seen: dict[tuple[str, str], Watched], groups: dict[str, int]) -> str:
    """A row per version, a column per tool, and below what was found."""
    tools = list(dict.fromkeys(tool for tool, _ in seen))
    lines = ["| version | launches | " + " | ".join(tools) + " |", "| --- | ---: |" + " --- |" * len(tools)]
    for name, count in groups.items():
        if any((tool, name) in seen for tool in tools):
            cells = [_cell(seen.get((tool, name)), count, planted=name.startswith("planted-")) for tool in tools]
            lines.append(f"| {name} | {count} | " + " | ".join(cells) + " |")
    told = complaints(seen, groups)
    return "\n".join([*lines, "", *told[:40], f"{len(told)} complaints"])


def _cell(watched: Watched | None, count: int, *, planted: bool) -> str:
    if watched is None:
        return ""
    if planted:
        return "found" if watched.findings else "MISSED"
    faults = len(watched.findings) + len(watched.wrong)
    if watched.launched != count:
        return f"{watched.launched} came back, {faults} findings"
    return f"{faults} findings" if faults else "clean"


def launch_all(cases: list[Case]) -> None:
    """In the watched process: makes each launch by the dispatcher's own launcher, and says of each what is wrong with its result."""
    cuda = Cuda()
    cuda.enter_primary(0)
    launcher = CudaLauncher(cuda, 0)
    for case in cases:
        wrong = launched(cuda, launcher, case)
        print(LAUNCHED + json.dumps({"symbol": case.instance.symbol, "size": case.problem.size, "wrong": wrong}), flush=True)


def launched(cuda: Cuda, launcher: CudaLauncher, case: Case) -> str:
    """What is wrong with the result of one launch; "" when nothing is."""
    problem, instance = case.problem, case.instance
    version = SOFTMAX.version(instance.configuration.version)
    library = cuda.call("cuLibraryLoadData", instance.binary, [], [], 0, [], [], 0)
    kernel = cuda.call("cuLibraryGetKernel", library, instance.symbol.encode())
    function = CudaFunction(launcher, kernel, version.bounds(instance.configuration))
    x = np.ascontiguousarray(check.inputs(problem))
    y = np.full_like(x, 7)
    short = 16 if case.plant == "output too small" else 0
    source_address, target_address = int(cuda.call("cuMemAlloc", x.nbytes)), int(cuda.call("cuMemAlloc", y.nbytes - short))
    if case.plant != "input never written":
        cuda.call("cuMemcpyHtoD", source_address, x.ctypes.data, x.nbytes)
    cuda.call("cuMemcpyHtoD", target_address, y.ctypes.data, y.nbytes - short)
    function.bind(problem, version.launch(instance.configuration, problem, launcher.device))(target_address, source_address, 0)
    cuda.call("cuCtxSynchronize")
    cuda.call("cuMemcpyDtoH", y.ctypes.data, target_address, y.nbytes - short)
    for address in (source_address, target_address):
        cuda.call("cuMemFree", address)
    compared = check.compare(y, SOFTMAX.reference(x.astype(np.float64)), SOFTMAX.tolerances[problem.dtype])
    return "" if compared or case.plant else str(compared)


if __name__ == "__main__":
    main()
