"""Compilers are bounded in time, and nothing that a sweep starts outlives it, whatever ends it. All processes here are real."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from autotune import catalogue, compilers
from autotune.backends.emulator import EmulatorBackend
from autotune.database import Database
from autotune.errors import CompileError
from autotune.problem import Problem
from autotune.sweeping import sweep

ROOT = Path(__file__).parent.parent
MARK = "AUTOTUNE_TEST_MARK"
# A program with a child of its own, as g++ and nvcc have, neither of which ends by itself.
ENDLESS = ("sh", "-c", "sleep 600 & echo started; wait")


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Stands in the environment of every process that is started in this test, however deep."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    return mark


def living(mark: str) -> dict[int, str]:
    """The processes that were started under `mark` and have not ended, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            if f"{MARK}={mark}".encode() in environment.split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # ended meanwhile, or another user's
    return found


def becomes(true: Callable[[], bool], within_s: float) -> bool:
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_a_compiler_says_how_it_ended_and_what_it_had_to_say() -> None:
    done = compilers.run(["sh", "-c", "echo out; echo error >&2; exit 3"])
    assert done == (3, b"out\n", b"error\n")
    assert compilers.run(["sh", "-c", "kill -SEGV $$"]).status == 128 + signal.SIGSEGV
    assert compilers.run(["cat"]).stdout == b""  # nothing is on its standard input
    missing = compilers.run(["/no/such/compiler"])
    assert missing == (127, b"", b"/no/such/compiler could not be started: No such file or directory\n")


def test_a_compiler_that_does_not_end_is_stopped_with_all_that_it_started(mark: str) -> None:
    with pytest.raises(CompileError, match=r"^sh was stopped after 0\.5 s"):
        compilers.run(ENDLESS, timeout_s=0.5)
    assert living(mark) == {}


SLOW = ["sh", "-c", "for second in 1 2; do for tenth in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; done"]


def test_time_in_which_everything_stood_still_is_none_that_a_compiler_took(mark: str) -> None:
    code = "import sys; from autotune import compilers; print(compilers.run(sys.argv[1:], timeout_s=5).status)"
    asker = subprocess.Popen([sys.executable, "-c", code, *SLOW], stdout=subprocess.PIPE, text=True)
    assert becomes(lambda: any(line.startswith("sh ") for line in living(mark).values()), 60)
    stopped = list(living(mark))
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    time.sleep(7)
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert asker.communicate(timeout=60)[0] == "0\n"


def test_a_compiler_leaves_none_of_its_own_children_behind(mark: str) -> None:
    compilers.run(["sh", "-c", "sleep 600 >/dev/null 2>&1 & exit 1"])
    assert living(mark) == {}


def test_compilers_that_run_side_by_side_are_stopped_as_soon_as_nobody_waits_for_them(mark: str) -> None:
    def build(unit: int) -> list[int]:
        if unit:
            compilers.run(ENDLESS)
        return [unit]

    results = compilers.in_parallel(build, [0, 1, 2, 3], 2)
    assert next(results) == 0
    started = time.monotonic()
    results.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 20
    assert living(mark) == {}


ASKER = """
import sys
from pathlib import Path
from autotune import compilers
compilers.run(sys.argv[2:], folder=Path(sys.argv[1]))
"""


def test_the_folder_goes_too_where_a_compiler_ends_because_nobody_reads_what_it_says(mark: str, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    talking = ("sh", "-c", "while true; do echo more; done")
    asker = subprocess.Popen([sys.executable, "-c", ASKER, str(folder), *talking], start_new_session=True)
    assert becomes(lambda: any(line.startswith("sh -c while") for line in living(mark).values()), 60)
    (warden,) = (pid for pid, line in living(mark).items() if "warden.py" in line)
    os.kill(warden, signal.SIGSTOP)  # as on a busy machine, where it comes to look after the compiler has ended
    asker.kill()
    asker.wait()
    assert becomes(lambda: list(living(mark)) == [warden], 5)
    os.kill(warden, signal.SIGCONT)
    assert becomes(lambda: not living(mark), 5), living(mark)
    assert not folder.exists()


@pytest.mark.parametrize("whole_group", [False, True])
def test_a_compiler_does_not_outlive_the_kill_9_of_whoever_asked_and_its_folder_goes_with_it(
    mark: str, tmp_path: Path, whole_group: bool
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "kernels.cu").touch()
    asker = subprocess.Popen([sys.executable, "-c", ASKER, str(folder), *ENDLESS], start_new_session=True)
    assert becomes(lambda: "sleep 600 " in living(mark).values(), 60)
    (os.killpg if whole_group else os.kill)(asker.pid, signal.SIGKILL)
    asker.wait()
    assert becomes(lambda: not living(mark), 5), living(mark)
    assert not folder.exists()


SWEEP = ("sweep", "softmax", "--size", "4x64", "--device", "emulator")
COMPILE = ("compile", "softmax", "--arch", "sm_90", "--dtype", "float32")
BUILDING = [pytest.param(SWEEP, "cc1plus", id="sweep"), pytest.param(COMPILE, "cicc", id="nvcc", marks=pytest.mark.nvcc)]


@pytest.mark.usefixtures("signals_are_heard")
@pytest.mark.parametrize(("command", "compiler"), BUILDING)
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_outlives_a_command_that_is_ended_while_it_compiles(
    command: tuple[str, ...], compiler: str, ending: signal.Signals, mark: str, tmp_path: Path
) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "AUTOTUNE_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    whole = [sys.executable, "-m", "autotune", *command, "--db", str(tmp_path / "x.sqlite"), "--jobs", "2"]
    running = subprocess.Popen(whole, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert becomes(lambda: any(compiler in line for line in living(mark).values()), 60)
    running.send_signal(ending)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == (-ending if ending == signal.SIGKILL else 128 + ending), said
    assert becomes(lambda: not living(mark), 5), living(mark)
    left = {path.name for place in (tmp_path, tmp_path / "cache" / "emulator") for path in place.glob("*") if path.suffix != ".so"}
    assert left <= {"cache", "emulator", "x.sqlite", "x.sqlite-shm", "x.sqlite-wal"}


def test_the_process_that_kernels_run_in_does_not_outlive_the_kill_9_of_its_sweep(mark: str, tmp_path: Path) -> None:
    whole = [sys.executable, "-m", "autotune", *SWEEP, "--version", "v1", "--json", "--db", str(tmp_path / "x.sqlite")]
    running = subprocess.Popen(whole, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert any('"event": "trial"' in line for line in running.stdout)
    assert any("autotune.backends.worker" in line for line in living(mark).values())
    running.kill()
    running.communicate()
    assert becomes(lambda: not living(mark), 5), living(mark)


def test_two_sweeps_at_once_share_a_cold_cache_and_nothing_else(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "AUTOTUNE_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    paths = [tmp_path / "a.sqlite", tmp_path / "b.sqlite"]
    commands = [[sys.executable, "-m", "autotune", *SWEEP, "--version", "v1", "--jobs", "1", "--db", str(path)] for path in paths]
    running = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for command in commands]
    said = [sweep.communicate(timeout=200)[0] for sweep in running]
    assert [sweep.returncode for sweep in running] == [0, 0], said
    for path in paths:
        with Database(path, mode="read") as database:
            assert {row["outcome"] for row in database.trial_rows()} <= {"ok", "pruned"}
            assert len(database.trial_rows()) == len(catalogue.load("softmax").version("v1").configurations())
    assert {path.suffix for path in (tmp_path / "cache" / "emulator").iterdir()} == {".so"}


OPERATION = """from autotune.operation import Tolerance
TOLERANCES = {"float32": Tolerance(relative=1e-6, absolute=1e-37)}
SAFE = ("v0", {"waits": 0})
def reference(x): return 2 * x
def bytes_moved(problem): return 2 * problem.rows * problem.bytes_per_row
"""
DEFINITION = """from autotune.definition import Bounds, Launch, all_of
TEMPLATE, PARAMETERS, DTYPES, IN_PLACE = "NAME.cu", {"waits": (0,)}, ("float32",), True
def bounds(configuration): return Bounds(threads=32)
def applicable(configuration, problem, device): return all_of()
def launch(configuration, problem, device): return Launch(blocks=problem.rows)
"""
TEMPLATE = """INCLUDED
#include "common.cuh"
template <class Element, int waits>
__device__ void twice_NAME(Element* output, const Element* input, long long, long long cols, long long output_stride,
                           long long input_stride, void*) {
    for (long long i = threadIdx.x; i < cols; i += blockDim.x)
        output[blockIdx.x * output_stride + i] = 2 * input[blockIdx.x * input_stride + i];
}
"""


def test_a_compiler_that_comes_to_no_end_ends_the_sweep_and_a_sweep_of_other_versions_goes_on(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = tmp_path / "endless.h"
    os.mkfifo(endless)  # whoever reads it waits for someone to write
    (tmp_path / "twice").mkdir()
    (tmp_path / "twice" / "operation.py").write_text(OPERATION)
    for name, included in (("v0", ""), ("v1", f"#include <{endless}>")):
        (tmp_path / "twice" / f"{name}.py").write_text(DEFINITION.replace("NAME", name))
        (tmp_path / "twice" / f"{name}.cu").write_text(TEMPLATE.replace("NAME", name).replace("INCLUDED", included))
    monkeypatch.setattr(compilers, "TIMEOUT_S", 5.0)
    with closing(EmulatorBackend(jobs=2)) as backend, Database(tmp_path / "x.sqlite", mode="write", create=True) as database:
        operation, problem = catalogue.load("twice", tmp_path), Problem("twice", 4, 64)
        with pytest.raises(
            compilers.MachineError, match=r"^v1 .*\(g\+\+ was stopped after 5 s without an end\); .* --version, and run again$"
        ):
            sweep(operation, [problem], backend, database)
        assert database.trial_rows() == []
        sweep(operation, [problem], backend, database, versions=("v0",))
        assert {row["version"]: row["outcome"] for row in database.trial_rows()} == {"v0": "ok"}
    assert [line for line in living(mark).values() if "cc1plus" in line] == []
