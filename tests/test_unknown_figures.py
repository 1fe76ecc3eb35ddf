"""What a database does not say is not shown as nothing: errors that were not recorded, and the spread of a single sample."""

import json
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
from tests.command import rows, said
from tests.fake import DEVICE, ENVIRONMENT, TIMING

SOFTMAX = load("softmax")
PROBLEM = Problem("softmax", 64, 1000)
KNOWN, UNKNOWN, FASTEST = (Configuration.of("v1", block=block, unroll=1) for block in (64, 128, 256))


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


def test_of_one_sample_no_spread_is_shown(recording: Path, tmp_path: Path) -> None:
    db = ("--db", str(tmp_path / "x.sqlite"))
    sweep_it = ("sweep", "softmax", "--size", PROBLEM.size, "--device", f"recorded:{recording}", *db)
    told = said(*sweep_it)
    assert f"best {UNKNOWN}: 10.00 us, one sample, " in told
    assert "+-" not in told
    (settled,) = [row for row in map(json.loads, said(*sweep_it, "--json").splitlines()) if row["event"] == "settled"]
    assert settled["confidence_us"] is None
    (best,) = rows("inspect", "best", *db)
    assert (best["time_us"], best["spread"]) == (10.0, None)
    assert "one sample" in said("inspect", "best", *db)
    assert "spread" not in said("inspect", "best", "--version", "v1", *db)


def test_a_spread_that_is_known_is_shown(recording: Path, tmp_path: Path) -> None:
    db = ("--db", str(tmp_path / "x.sqlite"))
    with Database(recording) as database:
        run = database.begin_run(DEVICE, ENVIRONMENT, TIMING)
        template = source_of(SOFTMAX.version("v1"))
        fastest = database.record(run, PROBLEM, FASTEST, template.sha, Outcome.OK, rounds=[Round("race", (9.0, 9.2, 9.1), 4)])
        assert database.rebuild({"softmax": SOFTMAX}).settled == 1
        (best,) = database.best()
        assert (best["trial"], best["spread"]) == (fastest, None)
    assert "few samples" in said("inspect", "best", "--db", str(recording))
    with Database(recording) as database:
        database.add_rounds({fastest: Round("final", (9.0, 9.2, 9.1, 9.3, 9.1), 4)})
        database.rebuild({"softmax": SOFTMAX})
    (best,) = rows("inspect", "best", "--db", str(recording))
    assert best["spread"] == pytest.approx(0.1 / 9.1)
    told = said("sweep", "softmax", "--size", PROBLEM.size, "--device", f"recorded:{recording}", *db)
    assert ", +-" in told
    assert "one sample" not in told
