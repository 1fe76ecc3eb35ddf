"""What a database does not say is not shown as nothing: errors that were not recorded, and the spread of a single sample."""

from pathlib import Path

import pytest

from autotune.backends.recorded import RecordedBackend
from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.problem import Problem
from autotune.source import read as source_of
from autotune.sweeping import sweep
from autotune.trial import Check, Outcome, Round
from tests.fake import DEVICE, ENVIRONMENT, TIMING

SOFTMAX = load("softmax")
PROBLEM = Problem("softmax", 64, 1000)
KNOWN, UNKNOWN = Configuration.of("v1", block=64, unroll=1), Configuration.of("v1", block=128, unroll=1)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Two configurations: of one it is known how wrong it was and how its ten samples spread, of the other one sample alone."""
    path = tmp_path / "recording.sqlite"
    with Database(path, create=True) as database:
        template = source_of(SOFTMAX.version("v1"))
        database.add_template("softmax", "v1", template)
        run = database.begin_run(DEVICE, ENVIRONMENT, TIMING)
        several = Round("screen", tuple(20 + 0.1 * n for n in range(10)), 4)
        database.record(run, PROBLEM, KNOWN, template.sha, Outcome.OK, check=Check(3e-7, 9.0), rounds=[several])
        database.record(run, PROBLEM, UNKNOWN, template.sha, Outcome.OK, rounds=[Round("screen", (10.0,), 4)])
    return path


def test_a_replay_stores_no_error_where_the_recording_has_none(recording: Path, tmp_path: Path) -> None:
    backend = RecordedBackend(recording)
    with Database(tmp_path / "x.sqlite", create=True) as database:
        sweep(SOFTMAX, [PROBLEM], backend, database)
        stored = {t.configuration: t.max_error for t in database.trials(DEVICE, TIMING) if t.run_id and t.rounds[0].kind == "screen"}
    backend.close()
    assert stored == {KNOWN: 3e-7, UNKNOWN: None}
