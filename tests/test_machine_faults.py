"""A compiler that fails for want of memory, processes or programs ends a sweep with what to do, and blames no configuration."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune import compilers
from autotune.backends.emulation import build
from autotune.compilers import machine_fault, wants
from autotune.database import Database
from tests.command import run
from tests.test_declared import written

# A compiler that is well for all but kernels, and for those too once a file says so.
STAND_IN = """#!/bin/sh
here="${0%/*}"
case "$*" in *-Wextra*|*--version*|*-shared*) exec g++ "$@";; esac
if [ -e "$here/well" ]; then exec g++ "$@"; fi
FAULT
"""
MEMORY, PROGRAM = "give this machine more memory, or compile fewer at once with --jobs", "install what the compiler lacks"
FAULTS = {
    "killed below": ('exec g++ "-B$here/killed/" "$@"', "g++: fatal error: Killed signal terminated program cc1plus", MEMORY),
    "killed itself": ("kill -9 $$", "cxx was ended by signal 9 (Killed)", MEMORY),
    "no assembler": ('gxx=$(command -v g++); PATH=/nowhere exec "$gxx" "$@"', "cannot execute", PROGRAM),
    "no processes": ("echo 'g++: fatal error: vfork: Resource temporarily unavailable' >&2; exit 1", "vfork", "end other processes"),
    "gone": ('rm "$0"; echo "cannot execute" >&2; exit 1', "could not be started", PROGRAM),
}


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "bin" / "killed").mkdir(parents=True)
    for name, text in (("cxx", STAND_IN), ("killed/cc1plus", "#!/bin/sh\nkill -9 $$\n")):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "bin" / "cxx"))
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    for known in (build.compiler, build.compiler_version):
        known.cache_clear()
    yield tmp_path / "bin" / "cxx"
    monkeypatch.undo()
    for known in (build.compiler, build.compiler_version):
        known.cache_clear()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_machine_ends_a_sweep_and_the_same_sweep_goes_on_once_it_is_mended(
    fault: str, compiler: Path, tmp_path: Path
) -> None:
    does, said, advice = FAULTS[fault]
    compiler.write_text(STAND_IN.replace("FAULT", does))
    path = tmp_path / "x.sqlite"
    sweep = ("sweep", "twice", "--kernels", str(written(tmp_path).parent), "--device", "emulator", "--size", "4x64", "--db", str(path))
    status, out, err = run(*sweep, "--jobs", "1")
    last = err.splitlines()[-1]
    assert status == 1, out + err
    assert last.startswith("autotune: v0 ")
    assert said in last
    assert advice in last
    assert last.endswith(", and run again")
    with Database(path) as database:
        assert database.trial_rows() == []
    compiler.write_text(STAND_IN)
    compiler.chmod(0o755)
    (compiler.parent / "well").touch()
    assert run(*sweep)[0] == 0
    with Database(path) as database:
        assert {row["outcome"] for row in database.trial_rows()} == {"ok"}


@pytest.mark.parametrize(
    "line",
    [
        "kernels.cu:3:10: fatal error: mine.h: No such file or directory",
        "softmax/v0.cu:3:2: error: #error out of memory",
        'kernels.cu(3): error: static assertion failed with "Killed"',
        "g++: internal compiler error: Segmentation fault signal terminated program cc1plus",
        "ptxas error   : Entry function 'k' uses too much shared data (0x20000 bytes, 0xc000 max)",
        "/usr/bin/ld: kernels.o: undefined symbol: f",
    ],
)
def test_what_is_wrong_with_a_template_is_no_fault_of_the_machine(line: str) -> None:
    assert machine_fault(line) is None


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes", "memory"),
        ("virtual memory exhausted: Cannot allocate memory", "memory"),
        ("collect2: fatal error: ld terminated with signal 9 [Killed]", "memory"),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "memory"),
        ("ptxas fatal   : Memory allocation failure", "memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "memory"),
        ("collect2: fatal error: cannot find 'ld'", "install"),
        ("nvcc fatal   : Failed to preprocess host compiler properties.", "install"),
        ("sh: 1: cicc: not found", "install"),
        ("sh: 0: Cannot fork: Resource temporarily unavailable", "processes"),
        ("kernels.cu:9:1: fatal error: error writing to /tmp/x.s: No space left on device", "make room"),
        ("nvcc was stopped after 300 s without an end", "--version"),
    ],
)
def test_a_want_of_the_machine_is_told_by_what_a_compiler_says(line: str, advice: str) -> None:
    assert advice in str(machine_fault(line))


def test_the_words_of_a_want_in_quoted_source_are_none() -> None:
    assert wants("kernels.cu:3:1: error: no\n    3 | int Killed;\n      | Killed\n    x = bad_alloc;\n") == []
    assert wants("k.cu:3:1: error: no\nas: out of memory\n") == ["as: out of memory"]


def test_a_compiler_that_was_killed_says_so_though_it_said_nothing() -> None:
    done = compilers.run(["sh", "-c", "kill -9 $$"])
    assert (done.status, wants(done.stderr.decode())) == (137, ["sh was ended by signal 9 (Killed)"])
