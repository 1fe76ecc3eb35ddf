"""What the dispatcher reads from database files, and what it does with files that are damaged, foreign, stale or locked away."""

import dataclasses
import os
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune import source
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.device import EMULATOR
from autotune.dispatch import explain
from autotune.dispatch.knowledge import Knowledge, read
from autotune.dispatch.store import Layer, binary, connect, layers, runs_on
from autotune.errors import AutotuneError, UsageError
from autotune.problem import Problem
from tests.dispatch_cases import CUBIN, H200, SOFTMAX, V2, V3, V4, damage_binaries, write_database

SAFE = SOFTMAX.safe


@pytest.fixture(autouse=True)
def no_other_databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "own.sqlite"))
    monkeypatch.setattr("autotune.dispatch.store.shipped_databases", list)


def known(*paths: Path) -> Knowledge:
    return read([Layer(path) for path in paths], SOFTMAX, H200)


def test_tuned_sizes_pins_blocks_and_instances_are_read(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 128, V3)], stored=[SAFE])
    with Database(path) as db:
        db.pin(H200, "softmax", "float32", (1, 10), (1, 20), V2, author="me", why="calm")
        db.block(H200, "softmax", V4, source.read(SOFTMAX.version("v4")).sha, "float32", "it hung")
        db.block(H200, "softmax", V2, source.read(SOFTMAX.version("v2")).sha, "float32", "it hummed")
        db.unblock(H200, "softmax", V2, "float32")
    knowledge = known(path)
    (entry,) = knowledge.tuned
    assert (entry.rows, entry.cols, entry.configuration, entry.time_us, entry.state) == (64, 128, V3, 10.0, "confirmed")
    (pin,) = knowledge.pins
    assert (pin.configuration, pin.most_rows, pin.why) == (V2, 10, "calm")
    assert knowledge.blocked == {(V4, "float32", None, None): "it hung"}
    assert knowledge.instances is not None
    assert set(knowledge.instances) == {(V3, "float32"), (SAFE, "float32")}
    assert binary(knowledge.instances[V3, "float32"]).startswith(CUBIN)


def test_the_first_layer_that_speaks_of_a_size_is_believed_and_the_others_fill_the_gaps(tmp_path: Path) -> None:
    own = write_database(tmp_path / "own.sqlite", [(64, 128, V3)])
    below = write_database(tmp_path / "below.sqlite", [(64, 128, V4), (64, 256, V4)])
    assert {(e.cols, e.configuration) for e in known(own, below).tuned} == {(128, V3), (256, V4)}


def test_what_was_measured_is_believed_before_what_was_replayed_of_the_same_size(tmp_path: Path) -> None:
    replayed = write_database(tmp_path / "replayed.sqlite", [(64, 128, V2)])
    measured = write_database(tmp_path / "measured.sqlite", [(64, 128, V3)])
    with sqlite3.connect(replayed) as connection:
        connection.execute("DROP TRIGGER trials_are_only_added")
        connection.execute("UPDATE trials SET replayed = 1")
    connection.close()
    for order in ((replayed, measured), (measured, replayed)):
        assert [entry.configuration for entry in read([Layer(path) for path in order], SOFTMAX, H200).tuned] == [V3]
    assert [entry.configuration for entry in read([Layer(replayed)], SOFTMAX, H200).tuned] == [V2]


def test_layers_are_the_named_database_or_that_of_the_environment_then_the_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, named, shipped = (write_database(tmp_path / f"{name}.sqlite") for name in ("own", "named", "shipped"))
    monkeypatch.setattr("autotune.dispatch.store.shipped_databases", lambda: [shipped])
    assert layers() == (Layer(own), Layer(shipped, immutable=True))
    assert layers(named) == (Layer(named), Layer(shipped, immutable=True))
    with pytest.raises(UsageError, match="does not exist"):
        layers(tmp_path / "typo.sqlite")


def test_a_row_of_another_state_of_the_kernels_is_left_out_with_one_warning(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 128, V3), (64, 256, V3)], stale=True)
    with pytest.warns(
        RuntimeWarning, match=r"^the best kernels of 2 tuned sizes in .*db.sqlite are left out, measured with other softmax kernels"
    ) as caught:
        knowledge = known(path)
    assert len(caught) == 1
    assert (knowledge.tuned, dict(knowledge.instances or {})) == ((), {})


@pytest.mark.parametrize(
    "parameters", ['{"block": 0, "vector": 4, "unroll": 1}', '{"block": 256}', '{"block": "x", "vector": 4, "unroll": 1}']
)
def test_a_row_whose_parameters_its_version_does_not_declare_is_left_out(tmp_path: Path, parameters: str) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 128, V3), (64, 256, V2)])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE configurations SET parameters = ? WHERE version = 'v3'", (parameters,))
    connection.commit()
    connection.close()
    with pytest.warns(RuntimeWarning, match="1 tuned size in .* is left out"):
        knowledge = known(path)
    assert [entry.configuration for entry in knowledge.tuned] == [V2]
    assert set(knowledge.instances or {}) == {(V2, "float32")}


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_left_out_with_one_warning_and_the_next_layer_serves(tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(content)
    below = write_database(tmp_path / "below.sqlite", [(64, 128, V3)])
    with pytest.warns(RuntimeWarning, match=r"broken.sqlite cannot be read and is left out") as caught:
        knowledge = known(broken, below)
    assert len(caught) == 1
    assert len(knowledge.tuned) == 1


def test_a_truncated_database_is_left_out(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 2**k, V3) for k in range(5, 12)])
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        known(path)
    assert len(caught) == 1


def test_a_foreign_database_with_nonsense_in_its_rows_is_left_out_whole(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 128, V3)])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE configurations SET parameters = '[1, 2]'")
    connection.commit()
    connection.close()
    with pytest.warns(RuntimeWarning, match="left out"):
        assert known(path).tuned == ()


def test_a_damaged_binary_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 128, V3)])
    damage_binaries(path, V3)
    instances = known(path).instances
    assert instances is not None
    with pytest.raises(AutotuneError, match=r"binary of softmax_v3_.* is damaged: its hash is not"):
        binary(instances[V3, "float32"])


def test_ptx_stands_in_where_there_is_no_cubin_for_this_gpu(tmp_path: Path) -> None:
    ptx = write_database(tmp_path / "ptx.sqlite", stored=[SAFE], arch="compute_75", code=b".version 8.0\n")
    cubin = write_database(tmp_path / "cubin.sqlite", stored=[SAFE])
    other = write_database(tmp_path / "other.sqlite", stored=[SAFE], arch="sm_80")
    assert [known(path).instances[SAFE, "float32"].kind for path in (ptx, cubin)] == ["ptx", "cubin"]  # type: ignore[index]
    assert known(ptx, cubin).instances[SAFE, "float32"].kind == "cubin"  # type: ignore[index]
    assert known(other).instances == {}


@pytest.mark.parametrize(
    ("kind", "arch", "runs"),
    [
        ("cubin", "sm_90", True),
        ("cubin", "sm_80", False),
        ("cubin", "sm_90a", False),
        ("ptx", "compute_80", True),
        ("ptx", "compute_90", True),
        ("ptx", "compute_100", False),
        ("ptx", "compute_90a", False),
    ],
)
def test_code_runs_where_its_architecture_says(kind: str, arch: str, runs: bool) -> None:
    assert runs_on(kind, arch, H200) is runs


def test_the_emulator_s_rows_never_stand_for_a_gpu_s(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 128, V3)], device=EMULATOR)
    knowledge = known(path)
    assert (knowledge.tuned, knowledge.similar) == ((), ())


def test_another_gpu_s_rows_are_kept_apart(tmp_path: Path) -> None:
    h100 = dataclasses.replace(H200, name="NVIDIA H100")
    knowledge = known(write_database(tmp_path / "db.sqlite", [(64, 128, V3)], device=h100))
    assert knowledge.tuned == ()
    ((device, (entry,)),) = knowledge.similar
    assert (device, entry.configuration) == (h100, V3)


@pytest.fixture
def locked_folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "locked"
    folder.mkdir()
    yield folder
    folder.chmod(0o755)


def test_a_database_in_a_folder_without_write_access_is_read(locked_folder: Path) -> None:
    path = write_database(locked_folder / "db.sqlite", [(64, 128, V3)])
    path.chmod(0o444)
    locked_folder.chmod(0o555)
    assert len(known(path).tuned) == 1
    assert len(read([Layer(path, immutable=True)], SOFTMAX, H200).tuned) == 1


def test_reading_cannot_write(tmp_path: Path) -> None:
    connection = connect(Layer(write_database(tmp_path / "db.sqlite")))
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM best")
    connection.close()


def test_explain_tells_the_decision_for_a_device_of_the_database_without_having_it(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 128, V3)], stored=[SAFE])
    for device in (None, "NVIDIA H200", H200):
        told = explain(Problem("softmax", 64, 127), device, db=path)
        assert (told.device, told.tier) == (H200, "safe")
        assert told.candidates[0].configuration == V3
    with pytest.raises(UsageError, match="device 'NVIDIA H300' is in no database; there are 'NVIDIA H200'"):
        explain(Problem("softmax", 64, 127), "NVIDIA H300", db=path)
    with pytest.raises(UsageError, match="no database knows a device yet"):
        explain(Problem("softmax", 64, 127))


def test_importing_autotune_and_reading_databases_needs_none_of_the_tuner_s_libraries(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 128, V3)])
    script = (
        "import sys, autotune; light = 'numpy' not in sys.modules; from autotune.dispatch import explain; "
        "from autotune.problem import Problem; "
        f"explain(Problem('softmax', 64, 128), db={str(path)!r}); "
        "print(sorted({'optuna', 'sqlite_utils', 'rich', 'click', 'pycuda', 'cuda', 'torch'} & set(sys.modules)), light)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "[] True\n"


def test_every_candidate_of_the_catalogue_can_be_stored_and_found(tmp_path: Path) -> None:
    some: list[Configuration] = SOFTMAX.configurations()[::23]
    instances = known(write_database(tmp_path / "db.sqlite", stored=some)).instances
    assert instances is not None
    assert {configuration for configuration, _ in instances} == set(some)
