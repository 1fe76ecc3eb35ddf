"""The command line: what it prints, how it ends, and one clear sentence for whatever it is given."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.database import Database, shipped_databases
from autotune.trial import Outcome
from tests.report_samples import measured

EMULATED = ("sweep", "softmax", "--size", "4x64", "--device", "emulator")


def autotune(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autotune", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), **(env or {})},
        cwd=cwd,
        timeout=300,
    )


def refused(*arguments: str, env: dict[str, str] | None = None) -> str:
    """The one sentence on standard error of a command that could not start."""
    done = autotune(*arguments, env=env)
    assert done.returncode == 2, done
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("autotune: ")
    return sentence


@pytest.mark.parametrize("size", ["0x10", "4096x", "x", "4096", "-1x5", "4096x4096x2", "1e3x5", "99999999x99999999"])
def test_a_bad_size_is_refused(size: str, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    assert repr(size) in refused("sweep", "softmax", "--size", size, "--db", str(path))
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sweep", "softmin"), "operation 'softmin' is not known; known: softmax"),
        (("sweep", "softmax", "--version", "v99"), "softmax has no version 'v99'; it has v0, v1, v2"),
        (("sweep", "softmax", "--dtype", "int8"), "dtype 'int8' is not offered by softmax"),
        (("sweep", "softmax", "--device", "tpu"), "device 'tpu' is not known; use auto, cuda"),
        (("sweep", "softmax", "--device", "recorded:/no/such.sqlite"), "/no/such.sqlite"),
        (("sweep", "softmax", "--trials", "0"), "--trials"),
        (("sweep", "softmax", "--seed", "-1"), "--seed"),
        (("sweep", "softmax", "--trials", "5", "--exhaustive"), "exhaustive search has no other limit"),
        (("sweep", "softmax", "--no-such-option"), "--no-such-option"),
        (("sweep",), "OPERATION"),
        (("swep",), "swep"),
        (("inspect", "best", "--db", "/no/such.sqlite"), "/no/such.sqlite"),
        (("inspect", "best", "--size", "7"), "'7'"),
        (("explain", "softmax", "4x4", "--device", "Abacus"), "'Abacus'"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(*arguments)


def test_a_gpu_that_is_not_there_is_refused() -> None:
    if _gpus():
        assert "cuda:99" in refused("sweep", "softmax", "--device", "cuda:99")
    else:
        assert "--device emulator" in refused("sweep", "softmax", "--device", "cuda")


def test_what_executes_nothing_is_not_verified() -> None:
    without_gpu = {"CUDA_VISIBLE_DEVICES": ""}
    assert "no CUDA GPU was found, so no kernel can be run on one; --device emulator" in refused("verify", "softmax", env=without_gpu)
    for device in ("recorded", "recorded:x.sqlite"):
        assert "replays times and runs no kernel" in refused("verify", "softmax", "--device", device)


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("milk, eggs\n" * 1000)
    for command in (("inspect", "best"), EMULATED):
        assert "notes.txt" in refused(*command, "--db", str(path))
    assert path.read_text() == "milk, eggs\n" * 1000


def test_a_database_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    assert autotune(*EMULATED, "--trials", "1", "--db", str(path)).returncode == 0
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    assert "999" in refused("inspect", "best", "--db", str(path))
    assert "999" in refused(*EMULATED, "--db", str(path))


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    assert "/proc/x.sqlite" in refused(*EMULATED, "--trials", "1", "--db", "/proc/x.sqlite")


def test_without_a_cpp_compiler_the_emulator_says_so(tmp_path: Path) -> None:
    hidden = {"PATH": str(tmp_path), "AUTOTUNE_CACHE": str(tmp_path / "cache"), "CXX": ""}
    assert "g++" in refused(*EMULATED, "--trials", "1", "--db", str(tmp_path / "x.sqlite"), env=hidden)


def test_without_nvcc_compile_says_so(tmp_path: Path) -> None:
    hidden = {"PATH": str(tmp_path), "CUDA_HOME": str(tmp_path), "CUDA_PATH": str(tmp_path)}
    assert "nvcc" in refused("compile", "softmax", "--safe", "--arch", "sm_90", "--db", str(tmp_path / "x.sqlite"), env=hidden)


@pytest.mark.parametrize("said", ["exit 1", "exit 0"])
def test_a_cpp_compiler_that_does_not_work_is_refused(tmp_path: Path, said: str) -> None:
    broken = tmp_path / "g++"
    broken.write_text(f"#!/bin/sh\n{said}\n", encoding="utf-8")
    broken.chmod(0o755)
    hidden = {"CXX": str(broken), "AUTOTUNE_CACHE": str(tmp_path / "cache")}
    assert "does not say its version" in refused(*EMULATED, "--trials", "1", "--db", str(tmp_path / "x.sqlite"), env=hidden)


def test_what_is_no_regular_file_is_no_database(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for command in (("inspect", "best"), EMULATED):
        assert "not a regular file" in refused(*command, "--db", str(pipe))


def test_a_report_never_replaces_a_database(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(b"SQLite format 3\0" + b"and what was measured")
    assert "does not replace" in refused("report", "--html", str(path), "--db", str(path))
    assert path.read_bytes().endswith(b"and what was measured")


@pytest.mark.parametrize("line", ["import sys; sys.exit(0)", "PARAMETERS = 3", "1 / 0", "SAFE = 3"])
def test_a_definition_that_says_nonsense_is_refused(tmp_path: Path, line: str) -> None:
    folder = tmp_path / "kernels" / "softmax"
    shutil.copytree(Path(__file__).parent.parent / "kernels" / "softmax", folder)
    with (folder / ("operation.py" if line.startswith("SAFE") else "v0.py")).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    said = refused(*EMULATED, "--kernels", str(folder.parent), "--version", "v0", "--db", str(tmp_path / "x.sqlite"))
    assert str(folder) in said or "PARAMETERS" in said


def test_a_folder_of_kernels_without_an_operation_is_refused(tmp_path: Path) -> None:
    (tmp_path / "softmax").mkdir()
    assert "has no operation.py" in refused(*EMULATED, "--kernels", str(tmp_path), "--db", str(tmp_path / "x.sqlite"))


def test_a_version_that_was_not_recorded_is_refused(tmp_path: Path) -> None:
    said = refused("sweep", "softmax", "--device", "recorded", "--size", "1x131072", "--version", "v9", "--db", str(tmp_path / "x.sqlite"))
    assert "v9 of softmax 1x131072 float32 was not recorded on NVIDIA H200" in said


def test_an_emulated_sweep_stores_rows_of_the_emulator_and_a_second_adds_none(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sqlite")
    first = autotune(*EMULATED, "--trials", "12", "--db", path)
    assert first.returncode == 0, first
    assert "12 new trials" in first.stdout
    trials = json.loads(autotune("inspect", "trials", "--json", "--db", path).stdout)
    assert len(trials) == 12
    assert {(t["device"], t["replayed"]) for t in trials} == {("emulator", False)}
    assert {t["outcome"] for t in trials} <= {"ok", "pruned"}
    assert all(t["time_us"] > 0 and t["max_error"] < 1e-5 for t in trials)
    (best,) = json.loads(autotune("inspect", "best", "--json", "--db", path).stdout)
    wanted = "device operation dtype rows cols version parameters time_us spread gb_per_s fraction_of_copy trials state"
    assert set(wanted.split()) <= set(best)
    assert best["fraction_of_copy"] is None
    assert "0 new trials" in autotune(*EMULATED, "--trials", "12", "--db", path).stdout


def test_a_replay_says_on_every_line_where_it_was_recorded_and_adds_nothing_the_second_time(tmp_path: Path) -> None:
    arguments = ("sweep", "softmax", "--device", "recorded", "--db", str(tmp_path / "x.sqlite"))
    first = autotune(*arguments)
    assert first.returncode == 0, first
    unmarked = [line for line in first.stdout.splitlines() if line.strip(" ─") and "recorded on NVIDIA H200" not in line]
    assert [line.split() for line in unmarked] == [["version", "configuration", "time", "us", "GB/s", "of", "copy", "trials"]]
    for version in ("v0", "v1", "v2", "v3", "v4"):
        assert f"\n{version} " in first.stdout
    assert "0 new trials" in autotune(*arguments).stdout


def test_a_size_that_was_not_recorded_is_an_error_that_names_the_nearest_that_were(tmp_path: Path) -> None:
    said = refused("sweep", "softmax", "--device", "recorded", "--size", "4096x4097", "--db", str(tmp_path / "x.sqlite"))
    assert "4096x4097 float32 was not recorded" in said
    named = re.findall(r"\d+x\d+", said.partition(";")[2])
    assert len(set(named)) == 5
    assert "4096x4096" in named
    with Database(shipped_databases()[0], mode="read") as shipped:
        sizes = {(row["rows"], row["cols"]) for row in shipped.problems() if row["dtype"] == "float32"}
    assert f"nearest of the {len(sizes)} sizes" in said
    assert "--device emulator" in said


def test_an_outcome_that_no_trial_can_have_is_refused_with_all_that_there_are() -> None:
    said = refused("inspect", "trials", "--outcome", "nonsense")
    assert "'nonsense'" in said
    for outcome in Outcome:
        assert f"'{outcome}'" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("trials", "--outcome", "timeout"), r"no trial has outcome timeout; there are ok \([\d,]+\), (wrong_result|launch_error) \("),
        (("trials", "--version", "v3", "--outcome", "crashed"), r"no trial of v3 has outcome crashed; there are ok \("),
        (("best", "--version", "v7"), r"no trial has version v7; there are v1 \(\d+\), v2 \(\d+\), v3 \(\d+\)"),
        (("best", "--dtype", "float16"), r"no trial has dtype float16; there are float32 \(\d+\), bfloat16 \(\d+\)"),
        (("best", "--size", "3x5"), r"nothing was tuned at 3x5; `autotune sweep softmax --size 3x5 --db \S*` does that"),
        (
            ("trials", "--size", "8192x4095", "--dtype", "bfloat16"),
            r"at 8192x4095 bfloat16; .* --dtype bfloat16 --db \S*` does that",
        ),
        (("best", "--size", "3x5", "--device", "Test GPU"), r"nothing was tuned at 3x5 on Test GPU; `autotune sweep"),
    ],
)
def test_filters_that_match_nothing_are_told_what_there_is(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = autotune("inspect", *arguments, "--db", str(measured(tmp_path / "x.sqlite")))
    assert done.returncode == 0
    assert re.search(said, done.stdout), done.stdout


@pytest.mark.parametrize("kind", ["best", "trials"])
def test_a_device_that_is_not_in_the_file_is_a_mistake_and_those_that_are_are_named(kind: str, tmp_path: Path) -> None:
    path = str(measured(tmp_path / "x.sqlite"))
    assert "device 'test gpu' is not in database" in refused("inspect", kind, "--device", "test gpu", "--json", "--db", path)
    assert "it has 'Other GPU', 'Test GPU', 'emulator'" in refused("inspect", kind, "--device", "Abacus", "--db", path)


def test_a_database_without_trials_says_so_whatever_the_filters(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sqlite")
    Database(Path(path), create=True).close()
    assert autotune("inspect", "trials", "--outcome", "ok", "--db", path).stdout == "nothing has been tried yet\n"
    assert autotune("inspect", "best", "--db", path).stdout == "nothing has been tuned yet\n"


def test_json_lines_tell_every_step(tmp_path: Path) -> None:
    done = autotune(*EMULATED, "--trials", "3", "--json", "--db", str(tmp_path / "x.sqlite"))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [e["event"] for e in events if e["event"] != "building"] == [
        "began",
        "problem",
        "trial",
        "trial",
        "trial",
        "racing",
        "settled",
        "ended",
    ]
    assert events[-1]["new_trials"] == 3


@pytest.mark.usefixtures("signals_are_heard")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_its_like_keep_what_was_measured_and_say_so(number: signal.Signals, tmp_path: Path) -> None:
    path = str(tmp_path / "x.sqlite")
    command = [sys.executable, "-m", "autotune", *EMULATED, "--exhaustive", "--json", "--db", path]
    sweep = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    seen = _read_trials(sweep, 5)
    os.killpg(sweep.pid, number)
    assert sweep.stdout is not None
    rest = sweep.stdout.read()  # not `communicate`, which knows nothing of lines that `readline` has fetched ahead
    assert sweep.wait(timeout=60) == 128 + number
    events = [json.loads(line) for line in rest.splitlines()]
    assert [events[-1][name] for name in ("event", "interrupted")] == ["ended", True]
    told = seen + sum(event["event"] == "trial" for event in events)
    stored = len(json.loads(autotune("inspect", "trials", "--json", "--db", path).stdout))
    assert 0 <= stored - told <= 1  # a trial is stored before it is told, and the signal may come in between


def test_kill_9_loses_no_stored_trial_and_the_next_sweep_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sqlite")
    command = [sys.executable, "-m", "autotune", *EMULATED, "--trials", "40", "--json", "--db", path]
    sweep = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    seen = _read_trials(sweep, 7)
    sweep.kill()
    sweep.communicate(timeout=60)
    stored = len(json.loads(autotune("inspect", "trials", "--json", "--db", path).stdout))
    assert stored >= seen
    assert f"{40 - stored} new trials" in autotune(*command[3:-3], "--db", path).stdout.replace('"', "")
    trials = json.loads(autotune("inspect", "trials", "--json", "--db", path).stdout)
    tried = [(t["version"], json.dumps(t["parameters"])) for t in trials]
    assert len(set(tried)) == 40


def test_a_closed_pipe_ends_quietly() -> None:
    command = f"{sys.executable} -m autotune inspect best --json --db results/nvidia-h200.sqlite | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, cwd=Path(__file__).parent.parent, timeout=60
    )
    assert done.stderr == ""


def _read_trials(sweep: "subprocess.Popen[str]", count: int) -> int:
    """Read the sweep's lines until `count` trials are told; how many were."""
    assert sweep.stdout is not None
    seen = 0
    started = time.monotonic()
    while seen < count and time.monotonic() - started < 120:
        seen += '"event": "trial"' in sweep.stdout.readline()
    return seen


def _gpus() -> int:
    from autotune.backends.select import gpu_count

    return gpu_count()
