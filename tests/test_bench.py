"""`autotune bench`: what would be chosen meets the other versions here and now, and nothing is stored."""

import shutil
from pathlib import Path

import pytest

from autotune.benching import Contest, contest, faster
from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.problem import Problem
from autotune.trial import Failure, Outcome
from autotune.workshop import Workshop
from tests.command import refused, rows, run, said
from tests.elementwise import elementwise
from tests.fake import FakeBackend, Told

SOFTMAX = load("softmax")
PROBLEM = Problem("softmax", 64, 1000)
CHOSEN, OTHER, SLOW = (Configuration.of("v2", block=block, unroll=1) for block in (64, 128, 256))
TEMPLATE = """
template <class Element, int bug>
__device__ void halve_v0(Element* output, const Element* input, long long, long long cols, long long output_stride, long long input_stride,
                         void*) {
    for (long long i = threadIdx.x; i < cols; i += blockDim.x)
        output[blockIdx.x * output_stride + i] = float(input[blockIdx.x * input_stride + i]) / (bug ? 3 : 2);
}
"""


def met(times: dict[Configuration, Told], noise: float = 0.0) -> Contest:
    backend = FakeBackend(lambda configuration, problem: times[configuration], noise=noise)
    return contest(backend, SOFTMAX, Workshop(backend, SOFTMAX), PROBLEM, times)


def test_who_is_faster_beyond_noise_beats_what_is_chosen() -> None:
    found = met({CHOSEN: 20.0, OTHER: 15.0, SLOW: 25.0}, noise=0.001)
    assert [one.configuration for one in found.contestants] == [OTHER, CHOSEN, SLOW]
    assert [one.configuration for one in faster(CHOSEN, found)] == [OTHER]
    assert found.contestants[0].time_us == pytest.approx(15.0, rel=0.01)
    assert found.copy_us == 10.0


def test_a_tie_beats_nobody() -> None:
    assert faster(CHOSEN, met({CHOSEN: 20.0, OTHER: 19.99})) == []
    assert faster(CHOSEN, met({CHOSEN: 20.0, OTHER: 19.5}, noise=0.2)) == []


def test_who_is_far_behind_is_timed_once_and_who_fails_has_no_time() -> None:
    found = met({CHOSEN: 20.0, SLOW: 20000.0, OTHER: Failure(Outcome.WRONG_RESULT, "as the test says")})
    assert [one.configuration for one in found.contestants] == [CHOSEN, SLOW, OTHER]
    assert [one.time_us for one in found.contestants] == [pytest.approx(20.0), pytest.approx(20000.0), None]
    assert found.contestants[2].failure == "wrong result: as the test says"
    assert faster(OTHER, found) == []


def test_what_is_chosen_meets_the_best_of_each_other_version_and_nothing_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    some = ("--version", "v0", "--version", "v1", "--version", "v2")
    run("sweep", "softmax", "--size", "3x64", *some, "--trials", "4", "--device", "emulator", "--db", str(path))
    with Database(path, mode="read") as database:
        before, tried = database.content_hash(), {row["version"] for row in database.trial_rows()}
    assert len(tried) > 1
    asked = ("bench", "softmax", "--size", "3x64", "--device", "emulator", "--db", str(path))
    found = rows(*asked)
    assert {row["version"] for row in found} == tried
    assert [(row["tier"], row["time_us"] > 0) for row in found if row["chosen"]] == [("exact", True)]
    assert all(row["behind"] >= 0 and row["copy_us"] is None and "half" not in row for row in found)
    told = said(*asked)
    assert "softmax 3x64 float32 on emulator" in told
    assert "chosen, tier exact" in told
    assert "not tuned at 3x64, so left out: v" in told
    (one, *_) = tried
    assert "left out" not in said(*asked, "--version", one)
    assert "left out: v3" in said(*asked, "--version", one, "--version", "v3")
    with Database(path, mode="read") as database:
        assert database.content_hash() == before


def test_what_would_be_chosen_and_is_wrong_is_told_and_is_exit_status_1(tmp_path: Path) -> None:
    elementwise(tmp_path, "halve", TEMPLATE, factor=0.5, bugs=2)
    mine = ("--kernels", str(tmp_path), "--db", str(tmp_path / "x.sqlite"), "--device", "emulator")
    said("sweep", "halve", "--size", "3x64", "--trials", "1", *mine)
    said("pin", "halve", "3x64", "v0 bug 1", "--why", "to see", *mine)
    status, out, err = run("bench", "halve", "--size", "3x64", *mine)
    assert (status, err) == (1, "")
    assert "chosen, tier pin; wrong result: " in " ".join(out.split())


def test_a_version_that_failed_whenever_it_was_tuned_is_not_called_untuned(tmp_path: Path) -> None:
    definition = tmp_path / "mine" / "halve"
    shutil.copytree(elementwise(tmp_path, "halve", TEMPLATE, factor=0.5, bugs=2).folder, definition)
    (definition / "v1.py").write_text((definition / "v0.py").read_text().replace("tuple(range(2))", "(1,)").replace("v0.cu", "v1.cu"))
    (definition / "v1.cu").write_text(TEMPLATE.replace("halve_v0", "halve_v1"))
    mine = ("--kernels", str(tmp_path / "mine"), "--db", str(tmp_path / "x.sqlite"), "--device", "emulator")
    said("sweep", "halve", "--size", "3x64", "--exhaustive", *mine)
    told = said("bench", "halve", "--size", "3x64", *mine)
    assert "v1 failed whenever it was tuned at 3x64, so it is left out; the last time wrong result: " in told
    assert "not tuned" not in told


def test_what_runs_no_kernel_is_refused() -> None:
    assert "replays times and runs no kernel" in refused("bench", "softmax", "--device", "recorded")
    assert "is not offered by softmax" in refused("bench", "softmax", "--device", "emulator", "--dtype", "int8")
