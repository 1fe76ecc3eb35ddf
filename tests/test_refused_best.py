"""A best that its definition no longer offers, or that is blocked: the next best that can be used takes its place, everywhere."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.database.rebuild import templates_here
from autotune.definition import Verdict, Version
from autotune.device import EMULATOR, Device
from autotune.dispatch.knowledge import read
from autotune.dispatch.selection import Candidate, Selector
from autotune.dispatch.store import Layer
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.sweeping import sweep
from autotune.trial import Instance
from tests.fake import DEVICE, FakeBackend

PROBLEM, NEIGHBOUR = Problem("softmax", 64, 1000), Problem("softmax", 64, 1003)
FULL = replace(load("softmax"), versions={name: load("softmax").version(name) for name in ("v1", "v2")})
SPACE = [c for c in FULL.configurations(("v1",)) if FULL.applicable(c, PROBLEM, DEVICE)]
RANKED = SPACE[2::2] + SPACE[:2] + SPACE[3::2]  # by time: not the declared order, and the first ones differ in their block


def times(configuration: Configuration, problem: Problem) -> float:
    return 10.0 + 0.1 * RANKED.index(configuration) if configuration in RANKED else 100.0


def backend(device: Device = DEVICE, **how: object) -> FakeBackend:
    return FakeBackend(times, device=device, **how)  # type: ignore[arg-type]


def of(version: Version) -> Operation:
    return replace(FULL, versions={**FULL.versions, "v1": version})


def narrowed(*refused: Configuration) -> Operation:
    """The operation once `applicable` of v1 refuses these, and is otherwise as it was."""
    v1 = FULL.version("v1")

    def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
        return Verdict("the test forbids it") if configuration in refused else v1.own_applicable(configuration, problem, device)

    return of(replace(v1, own_applicable=applicable))


def undeclared(*gone: Configuration) -> Operation:
    """The operation once v1 declares none of the blocks that these have."""
    blocks = {c["block"] for c in gone}
    v1 = FULL.version("v1")
    left = {name: tuple(v for v in values if name != "block" or v not in blocks) for name, values in v1.parameters.items()}
    return of(replace(v1, parameters=left))


EDITS = {"not applicable": narrowed, "not declared": undeclared}


@pytest.fixture(params=[DEVICE, EMULATOR], ids=lambda device: device.name)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "x.sqlite", create=True) as database:
        sweep(FULL, [PROBLEM], backend(request.param), database, versions=("v1",))
        assert best(database) == (RANKED[0], "confirmed")
        yield database


def best(database: Database) -> tuple[Configuration, str]:
    (row,) = database.best("softmax", PROBLEM.rows, PROBLEM.cols)
    return Configuration.of(row["version"], **row["parameters"]), row["state"]


def device_of(database: Database) -> Device:
    (device,) = database.devices_measured()
    return device


def chosen(database: Database, operation: Operation, problem: Problem = PROBLEM) -> Candidate:
    device = device_of(database)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "1 tuned size in .* is left out")
        return Selector(operation, device, read([Layer(database.path)], operation, device)).choose(problem)


@pytest.mark.parametrize("edit", EDITS)
def test_a_sweep_settles_on_the_next_best_without_trying_what_is_gone(edit: str, database: Database) -> None:
    again = backend(device_of(database))
    summary = sweep(EDITS[edit](RANKED[0]), [PROBLEM], again, database, versions=("v1",))
    (problem,) = summary.problems
    assert (summary.new_trials, again.tried, problem.known, problem.whole) == (0, [], problem.space, True)
    assert problem.choice is not None
    assert problem.choice.configuration == RANKED[1]
    assert best(database) == (RANKED[1], "confirmed")
    assert RANKED[0] not in again.compiled


@pytest.mark.parametrize("edit", EDITS)
def test_rebuild_settles_on_the_next_best_and_on_none_where_none_is_left(edit: str, database: Database) -> None:
    database.rebuild({"softmax": EDITS[edit](*RANKED[:2])})
    assert best(database) == (RANKED[2], "confirmed")
    assert database.rebuild({"softmax": EDITS[edit](*RANKED)}).settled == 0
    assert best(database) == (RANKED[2], "stale")
    database.rebuild({"softmax": FULL})
    assert best(database) == (RANKED[0], "confirmed")


def test_it_is_shown_as_stale_with_the_reason(database: Database) -> None:
    assert database.stale(FULL) == database.stale(narrowed(RANKED[1])) == []
    (refused,) = database.stale(narrowed(RANKED[0]))
    assert (refused["state"], refused["why"]) == ("stale", "its definition refuses it: the test forbids it")
    (gone,) = database.stale(undeclared(RANKED[0]))
    assert gone["why"] == "its definition no longer declares it"


@pytest.mark.parametrize("edit", EDITS)
def test_once_it_is_offered_again_the_one_that_took_its_place_is_stale_and_rebuild_settles_it(edit: str, database: Database) -> None:
    gone = RANKED[:2]
    sweep(EDITS[edit](*gone), [PROBLEM], backend(device_of(database)), database, versions=("v1",))
    assert best(database) == (RANKED[2], "confirmed")
    assert database.stale(EDITS[edit](*gone)) == []
    (overtaken,) = database.stale(FULL)
    assert overtaken["why"] == f"a faster configuration that was refused before is offered again: {RANKED[0]}"
    database.block(device_of(database), "softmax", RANKED[0], sha("v1"), "float32", "it hums")
    assert database.stale(FULL) == []  # the next is no faster than what may be noise
    database.unblock(device_of(database), "softmax", RANKED[0], "float32")
    database.rebuild({"softmax": FULL})
    assert best(database) == (RANKED[0], "confirmed")
    assert database.stale(FULL) == []


def test_what_led_a_race_that_was_broken_off_leads_again_and_its_final_is_to_come(database: Database) -> None:
    device, gone = device_of(database), RANKED[0]
    with database.write() as connection:
        connection.execute("DROP TRIGGER rounds_are_only_added")
        first = "SELECT t.id FROM trials t JOIN configurations c ON c.id = t.configuration WHERE c.parameters = ?"
        connection.execute(f"UPDATE rounds SET kind = 'race' WHERE kind = 'final' AND trial IN ({first})", (gone.to_json(),))
    sweep(narrowed(*RANKED[:2]), [PROBLEM], backend(device), database, versions=("v1",))
    assert best(database) == (RANKED[2], "confirmed")
    database.rebuild({"softmax": narrowed(RANKED[1])})
    assert best(database) == (RANKED[0], "provisional")


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("gone", [1, 2])
def test_the_dispatcher_takes_the_next_best_that_it_can_run(edit: str, gone: int, database: Database) -> None:
    operation = EDITS[edit](*RANKED[:gone])
    for configuration in RANKED[gone : gone + 3]:
        stored(database, configuration)
    for problem, tier in ((PROBLEM, "exact"), (NEIGHBOUR, "nearest")):
        found = chosen(database, operation, problem)
        assert (found.configuration, found.tier) == (RANKED[gone], tier)
        assert found.tuned is not None
        assert found.tuned.time_us == times(RANKED[gone], PROBLEM)


def test_on_a_gpu_only_what_is_compiled_stands_for_it(tmp_path: Path) -> None:
    with Database(tmp_path / "x.sqlite", create=True) as database:
        sweep(FULL, [PROBLEM], backend(), database, versions=("v1",))
        stored(database, RANKED[3])
        stored(database, FULL.safe)
        found = chosen(database, narrowed(RANKED[0]))
        assert (found.configuration, found.tier, found.expected_regret) == (RANKED[3], "exact", 0.0)
        database.block(DEVICE, "softmax", RANKED[3], sha("v1"), "float32", "it hums")
        assert chosen(database, narrowed(RANKED[0])).tier == "safe"


def test_where_nothing_that_was_measured_can_be_used_the_safe_kernel_is_left(tmp_path: Path) -> None:
    with Database(tmp_path / "x.sqlite", create=True) as database:
        sweep(FULL, [PROBLEM], backend(EMULATOR), database, versions=("v1",))
        assert chosen(database, narrowed(*RANKED)).tier == "safe"


def test_a_best_that_another_size_had_blocked_gives_way_to_the_next(tmp_path: Path) -> None:
    with Database(tmp_path / "x.sqlite", create=True) as database:
        sweep(FULL, [PROBLEM], backend(EMULATOR), database, versions=("v1",))
        database.block(EMULATOR, "softmax", RANKED[0], sha("v1"), "float32", "it crashed elsewhere")
        assert best(database) == (RANKED[0], "blocked")
        assert chosen(database, FULL)[:2] == ("exact", RANKED[1])


def test_an_explanation_names_what_was_refused_before_what_was_taken(tmp_path: Path) -> None:
    with Database(tmp_path / "x.sqlite", create=True) as database:
        sweep(FULL, [PROBLEM], backend(EMULATOR), database, versions=("v1",))
        operation = narrowed(RANKED[0])
        story = Selector(operation, EMULATOR, read([Layer(database.path)], operation, EMULATOR)).explain(PROBLEM)
    assert [(c.configuration, c.rejected) for c in story.candidates] == [(RANKED[0], "the test forbids it"), (RANKED[1], "")]


@pytest.mark.parametrize("barred", ["not applicable", "blocked"])
def test_after_a_change_of_driver_what_must_not_run_is_no_sentinel(barred: str, tmp_path: Path) -> None:
    with Database(tmp_path / "x.sqlite", create=True) as database:
        sweep(FULL, [PROBLEM], backend(), database, versions=("v1",))
        if barred == "blocked":
            database.block(DEVICE, "softmax", RANKED[0], sha("v1"), "float32", "it hums")
        newer = backend(environment=replace(FakeBackend.environment, driver="2"))
        sweep(FULL if barred == "blocked" else narrowed(RANKED[0]), [PROBLEM], newer, database, versions=("v1",))
        assert RANKED[0] not in newer.compiled
        assert newer.tried == [(PROBLEM, RANKED[1])]
        assert best(database)[0] == RANKED[1]


def test_without_a_finalist_that_can_be_used_the_best_is_provisional(tmp_path: Path) -> None:
    with Database(tmp_path / "x.sqlite", create=True) as database:
        sweep(FULL, [PROBLEM], backend(), database, versions=("v1",))
        finalists = {t.configuration for t in database.trials(DEVICE, FakeBackend.timing) if any(r.kind == "final" for r in t.rounds)}
        assert len(finalists) < len(SPACE)
        for configuration in finalists:
            database.block(DEVICE, "softmax", configuration, sha("v1"), "float32", "it hums")
        database.rebuild({"softmax": FULL})
        assert best(database) == (next(c for c in RANKED if c not in finalists), "provisional")


def sha(version: str) -> str:
    return templates_here(FULL)[version]


def stored(database: Database, configuration: Configuration) -> None:
    """Have code of it stored."""
    ((_, instance),) = backend().compile(FULL.version(configuration.version), [configuration], "float32")
    assert isinstance(instance, Instance)
    database.store_binary(instance)
