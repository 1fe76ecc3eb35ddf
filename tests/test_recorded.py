"""Recordings of any device, and the protocols that a device has."""

from contextlib import closing
from pathlib import Path

import pytest

import autotune
from autotune.backends.recorded import RecordedBackend
from autotune.database import Database
from autotune.errors import UsageError
from tests.command import refused, rows, said
from tests.report_samples import measured

EMULATED = ("sweep", "softmax", "--size", "5x7", "--device", "emulator")


def test_what_the_emulator_recorded_is_replayed(tmp_path: Path) -> None:
    recording, replay = str(tmp_path / "recording.sqlite"), str(tmp_path / "replay.sqlite")
    said(*EMULATED, "--trials", "3", "--db", recording)
    told = said("sweep", "softmax", "--size", "5x7", "--device", f"recorded:{recording}", "--db", replay)
    assert "3 of 3 recorded configurations known" in told
    assert "(recorded on emulator)" in told
    (first,), (second,) = (rows("inspect", "best", "--db", path) for path in (recording, replay))
    assert (first["replayed"], second["replayed"]) == (False, True)
    assert (second["device"], second["protocol"], second["fraction_of_copy"]) == ("emulator", "cpu", None)


def test_the_emulator_has_no_protocol_to_choose(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    for protocol in ("warm", "cold"):
        told = refused(*EMULATED, "--protocol", protocol, "--db", str(path))
        assert f"protocol '{protocol}' is one of a GPU" in told
    assert not path.exists()
    with pytest.raises(UsageError, match="leave the protocol out"):
        autotune.sweep("softmax", sizes=[(5, 7)], device="emulator", protocol="warm", db=path)


def test_of_several_protocols_the_cold_one_is_replayed_unless_another_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    measured(path, warm=0.5)
    with Database(path, mode="read") as database:
        device = next(d.name for d in database.devices_measured() if len(database.protocols_measured(d)) > 1)
    for asked, taken in ((None, "cold"), ("cold", "cold"), ("warm", "warm")):
        with closing(RecordedBackend(path, device=device, protocol=asked)) as backend:
            assert backend.timing.name == taken
    with pytest.raises(UsageError, match="under protocol 'hot'; leave it out, for recorded is cold, warm"):
        RecordedBackend(path, device=device, protocol="hot")


def test_a_recording_that_is_not_there_is_told_what_to_give(tmp_path: Path) -> None:
    told = refused("sweep", "softmax", "--device", "recorded:nix", "--db", str(tmp_path / "x.sqlite"))
    assert told.startswith("autotune: the recording nix does not exist; give the path of a database")
    assert "--device recorded for the measurements that come with the package" in told
