"""What travels and what people decide: export, import, rebuild, prune, pin and block on the command line."""

import json
import re
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import pytest

from autotune.catalogue import load
from autotune.database import Database
from autotune.database.rebuild import templates_here
from autotune.device import Device
from autotune.problem import Problem
from autotune.source import templates
from autotune.trial import Outcome, Round
from tests.command import refused, rows, run, said
from tests.database_samples import COLD, DEVICE, ENVIRONMENT, FAST, PROBLEM, SLOW, SOURCE, begin, instance, record, screen, settle
from tests.dispatch_cases import H200, V2, write_database
from tests.dispatch_cases import V3 as V3_256
from tests.report_samples import measured

RESULTS = Path(__file__).parent.parent / "results" / "nvidia-h200.sqlite"
UNKNOWN = Device("NVIDIA Unknown", (7, 5), 40, 4 << 20, 256, 65536, 65536)  # of which nothing is shipped
V3 = "v3 block 384, vector 4, unroll 4"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """One problem with three trials of one template: two of the same configuration, and one that failed."""
    path = tmp_path / "small.sqlite"
    with Database(path, create=True) as db:
        run = begin(db)
        record(db, run, FAST, [screen(41.0)])
        trial = record(db, run, FAST, [screen(40.0)])
        db.record(run, PROBLEM, SLOW, SOURCE.sha, Outcome.TIMEOUT, message="spins")
        db.record_copy(run, PROBLEM, 36.0)
        db.store_binary(instance(FAST))
        settle(db, run, trial, FAST, 40.0)
        db.end_run(run, "done")
    return path


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database into which the shipped one was imported with its kernels."""
    path = tmp_path_factory.mktemp("share") / "mine.sqlite"
    (brought,) = rows("import", str(RESULTS), "--with-kernels", "--db", str(path))
    assert brought["trials"] > 1000
    return path


def test_a_database_goes_out_and_comes_in_and_the_second_time_adds_nothing(small: Path, tmp_path: Path) -> None:
    shared, mine = tmp_path / "shared.sqlite", tmp_path / "mine.sqlite"
    assert said("export", str(shared), "--db", str(small)) == f"{shared}: 3 trials, 1 best kernel, 1 compiled kernel\n"
    (first, second) = rows("import", str(shared), str(shared), "--db", str(mine))
    assert (first["trials"], first["best"], first["binaries"]) == (3, 1, 0)
    assert second["added"] == {}
    assert rows("inspect", "best", "--db", str(mine))[0]["origin"] == "imported"
    assert "exists; export to a new file" in refused("export", str(shared), "--db", str(small))


def test_a_shipped_database_of_an_older_schema_can_be_exported(tmp_path: Path) -> None:
    said("export", str(tmp_path / "again.sqlite"), "--db", str(RESULTS))
    with Database(tmp_path / "again.sqlite", mode="read") as db, Database(RESULTS, mode="read") as original:
        assert db.content_hash() == original.content_hash()


def test_foreign_kernels_come_only_when_asked_for_and_only_of_templates_that_are_here(small: Path, shipped: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.sqlite"
    (brought,) = rows("import", str(small), "--with-kernels", "--db", str(mine))
    assert brought["binaries"] == 0  # its template is nobody's
    (brought,) = rows("import", str(RESULTS), "--db", str(mine))
    assert brought["binaries"] == 0
    with Database(shipped, mode="read") as db:
        kept = db.select("SELECT template_sha FROM stored_instances")
    with Database(RESULTS, mode="read") as db:
        here = set(templates_here(load("softmax")).values())
        assert len(kept) == len([r for r in db.select("SELECT template_sha FROM stored_instances") if r["template_sha"] in here])


def test_a_file_that_is_neither_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    notes, cut = tmp_path / "notes.txt", tmp_path / "cut.json"
    notes.write_text("milk, eggs\n" * 1000)
    cut.write_text('{"device_name": ')
    mine = str(tmp_path / "mine.sqlite")
    assert "notes.txt is neither an SQLite database nor JSON" in refused("import", str(notes), "--db", mine)
    assert "cut.json is malformed JSON" in refused("import", str(cut), "--db", mine)
    absent = tmp_path / "absent.sqlite"
    assert "absent.sqlite does not exist" in refused("import", str(absent), "--db", str(tmp_path / "new.sqlite"))
    assert not (tmp_path / "new.sqlite").exists()


def test_best_kernels_are_rebuilt_from_trials(shipped: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(shipped.read_bytes())
    with Database(path) as db:
        some = {row["id"] for row in db.select("SELECT id FROM problems WHERE dtype = 'float32' ORDER BY id LIMIT 60")}
        db.forget_problems(row["id"] for row in db.select("SELECT id FROM problems") if row["id"] not in some)
    status, out, steps = run("rebuild", "--json", "--db", str(path))
    (done,) = json.loads(out)
    assert (status, done["unknown"]) == (0, 0)
    assert done["settled"] + done["stale"] == len(rows("inspect", "best", "--db", str(path))) == 60
    assert "training the selector for softmax float32 on NVIDIA H200" in steps
    status, out, steps = run("rebuild", "--json", "--db", str(path))
    assert "training" not in steps
    assert [story.count("nothing was measured since it was trained") for story in json.loads(out)[0]["trained"]] == [1]


def test_prune_says_what_would_go_and_goes_by_its_rules(small: Path) -> None:
    def counts(*arguments: str) -> dict[str, int]:
        return {row["rule"]: row["trials"] for row in rows("prune", *arguments, "--db", str(small))}

    assert counts("--superseded", "--failed", "--replayed") == {"superseded": 1, "failed": 1, "replayed": 0}
    assert counts("--stale") == {"stale": 2}  # the best rests on the third, so it stays
    assert counts("--older-than", "1") == {"older-than": 0}
    assert "2 trials would be deleted; --yes does it" in said("prune", "--superseded", "--failed", "--db", str(small))
    assert len(rows("inspect", "trials", "--db", str(small))) == 3
    said("prune", "--superseded", "--failed", "--yes", "--db", str(small))
    (left,) = rows("inspect", "trials", "--db", str(small))
    assert left["time_us"] == 40.0
    assert rows("inspect", "best", "--db", str(small))[0]["time_us"] == 40.0
    assert counts("--older-than", "0") == {"older-than": 0}
    with Database(small, mode="read") as db:
        assert db.select("PRAGMA foreign_key_check") == []
    assert "no rule was given" in refused("prune", "--db", str(small))


def test_what_is_pruned_here_comes_back_with_an_import(small: Path, tmp_path: Path) -> None:
    said("export", str(tmp_path / "e.sqlite"), "--db", str(small))
    said("prune", "--superseded", "--failed", "--yes", "--db", str(small))
    (brought,) = rows("import", str(tmp_path / "e.sqlite"), "--db", str(small))
    assert brought["trials"] == 2


def test_a_pin_is_shown_obeyed_by_explain_and_taken_away(shipped: Path) -> None:
    db = ("--db", str(shipped))
    said("pin", "softmax", "4096x1024..4096x8192", V3, "--why", "steady", "--author", "ada", *db)
    (pin,) = rows("inspect", "pins", *db)
    assert (pin["least_rows"], pin["most_cols"], pin["author"], pin["why"]) == (4096, 8192, "ada", "steady")
    assert pin["parameters"] == {"block": 384, "vector": 4, "unroll": 4}
    told = rows("explain", "softmax", "4096x2048", "--device", "NVIDIA H200", *db)
    assert told[0]["tier"] == "pin"
    assert "no pin on NVIDIA H200" in refused("unpin", "softmax", "4096x1024", *db)
    said("unpin", "softmax", "4096x1024..4096x8192", *db)
    assert rows("inspect", "pins", *db) == []


def test_versions_are_in_the_order_of_their_numbers_without_those_of_the_past_that_left_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    declared = dict(templates(load("softmax")))
    with Database(path, create=True) as db:
        for version in ("v10", "v2", "v0"):
            db.add_template("softmax", version, declared[version])
        db.add_template("softmax", "v99", SOURCE)
        db.add_template("mine", "v1", SOURCE)
    shown = rows("inspect", "versions", "--db", str(path))
    assert [(row["operation"], row["version"]) for row in shown] == [("mine", "v1"), *(("softmax", v) for v in ("v0", "v2", "v10"))]
    assert all(row["trials"] == 0 for row in shown)


def test_versions_of_the_past_that_were_tried_stay(small: Path) -> None:
    (row,) = rows("inspect", "versions", "--db", str(small))
    assert (row["template_sha"], row["trials"]) == (SOURCE.sha, 3)


def test_a_pin_without_a_compiled_instance_tells_the_command_that_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "my kernels.sqlite"
    Database(path, create=True).close()
    with Database(RESULTS, mode="read") as database:
        stored = {row["parameters"] for row in database.select("SELECT parameters FROM stored_instances WHERE version = 'v2'")}
    bare = next(c for c in load("softmax").configurations(("v2",)) if c.to_json() not in stored)
    kernel = ("softmax", "4096x512", str(bare), "--dtype", "float16", "--device", "NVIDIA H200")
    told = said("pin", *kernel, "--why", "so", "--db", str(path)).splitlines()
    assert told[-1] == f"autotune compile softmax --arch sm_90 --dtype float16 --configuration '{bare}' --db '{path}'"


def test_an_instance_of_another_template_is_none_of_a_pin(tmp_path: Path) -> None:
    path = write_database(tmp_path / "x.sqlite", [(4096, 4096, V2)], device=UNKNOWN, stale=True)
    told = said("pin", "softmax", "4096x4096", str(V2), "--why", "so", "--device", UNKNOWN.name, "--db", str(path))
    assert "no compiled instance of it for sm_75 is stored yet" in told


def test_a_block_says_what_runs_now_and_what_must_be_compiled_to_have_the_next_best(tmp_path: Path) -> None:
    path = write_database(tmp_path / "x.sqlite", [(4096, 4096, V3_256), (64, 4096, V3_256)], device=UNKNOWN, stored=[V2])
    bare = next(c for c in load("softmax").configurations(("v4",)))
    with Database(path) as db:
        begun = db.begin_run(UNKNOWN, ENVIRONMENT, COLD)
        sha = templates_here(load("softmax"))["v4"]
        problem = Problem("softmax", 4096, 4096)
        db.record(begun, problem, bare, sha, Outcome.OK, rounds=[Round("final", (10.5, 10.6), 4)])
    told = said("block", "softmax", str(V3_256), "--why", "it hums", "--db", str(path)).splitlines()
    assert told[1] == f"4096x4096, 64x4096 now run {load('softmax').safe}, tier safe"
    assert told[2].startswith(f"{bare} would run there, but no compiled instance of it for sm_75 is stored yet, so it is passed over")
    assert told[3] == f"autotune compile softmax --arch sm_75 --dtype float32 --configuration '{bare}' --db {path}"
    back = said("unblock", "softmax", str(V3_256), "--db", str(path)).splitlines()
    assert back[1:] == [f"4096x4096, 64x4096 now run {V3_256}, tier exact"]


def test_a_block_names_what_must_be_compiled_though_what_runs_stays_as_it_was(tmp_path: Path) -> None:
    """The best was never compiled, and neither was the next one: the safe kernel runs before the block and after it."""
    path = write_database(tmp_path / "x.sqlite", device=UNKNOWN, stored=[load("softmax").safe])
    problem, second = Problem("softmax", 4096, 4096), next(iter(load("softmax").configurations(("v4",))))
    with Database(path) as db:
        begun, shas = db.begin_run(UNKNOWN, ENVIRONMENT, COLD), templates_here(load("softmax"))
        for configuration, time_us in ((V3_256, 9.0), (second, 10.0)):
            final = Round("final", (time_us, time_us + 0.1), 4)
            db.record(begun, problem, configuration, shas[configuration.version], Outcome.OK, rounds=[final])
    said("rebuild", "--db", str(path))
    told = said("block", "softmax", str(V3_256), "--why", "it hums", "--db", str(path)).splitlines()
    assert told[-1] == f"autotune compile softmax --arch sm_75 --dtype float32 --configuration '{second}' --db {path}"
    assert not [line for line in told if " now run" in line]


def test_a_block_after_which_nothing_runs_names_the_kernel_that_takes_any_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.dispatch.store.shipped_databases", list)  # the shipped one has that kernel for any GPU
    path = write_database(tmp_path / "x.sqlite", [(4096, 4096, V3_256)], device=UNKNOWN)
    safe = load("softmax").safe
    told = said("block", "softmax", str(V3_256), "--why", "it hums", "--db", str(path)).splitlines()
    assert told[1] == "4096x4096 now runs no kernel: none is left that can run it"
    assert told[-1] == f"autotune compile softmax --arch sm_75 --dtype float32 --configuration '{safe}' --db {path}"


def test_pins_say_what_runs_at_their_sizes_before_and_after(tmp_path: Path) -> None:
    path = write_database(tmp_path / "x.sqlite", [(4096, 4096, V3_256)], device=UNKNOWN, stored=[V2])
    told = said("pin", "softmax", "4096x4096", str(V2), "--why", "calm", "--db", str(path))
    assert told.endswith(f"\n4096x4096 now runs {V2}, tier pin\n")
    assert said("unpin", "softmax", "4096x4096", "--db", str(path)).endswith(f"\n4096x4096 now runs {V3_256}, tier exact\n")


def test_where_more_changes_than_can_be_read_the_rest_is_counted(shipped: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(shipped.read_bytes())
    safe = str(load("softmax").safe)
    _, told = said("pin", "softmax", "1x1..262144x262144", safe, "--why", "calm", "--db", str(path)).splitlines()
    assert re.search(rf"^(\d+x\d+, ){{2}}\d+x\d+ and \d{{3}} more sizes now run {safe}, tier pin$", told)
    lines = said("unpin", "softmax", "1x1..262144x262144", "--db", str(path)).splitlines()
    assert len(lines) <= 8
    assert any(re.search(r"^other kernels now run \d+ more sizes; autotune explain OPERATION MxN says which$", line) for line in lines)


@pytest.mark.parametrize("decision", [("pin", "softmax", "4096x4096"), ("block", "softmax")], ids=["pin", "block"])
def test_what_a_person_decides_makes_the_database_that_it_is_kept_in(decision: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "new" / "mine.sqlite"
    asked = (*decision, str(V3_256), "--why", "so", "--db", str(path))
    assert "say which device this is about" in refused(*asked)
    assert not path.parent.exists()
    said(*asked, "--device", "NVIDIA H200")
    (kept,) = rows("inspect", "pins" if decision[0] == "pin" else "blocked", "--db", str(path))
    assert (kept["version"], kept["device"]) == ("v3", "NVIDIA H200")
    assert "does not exist" in refused(
        f"un{decision[0]}", *decision[1:], *([] if decision[0] == "pin" else ["--all"]), "--db", "none.sqlite"
    )


@pytest.mark.nvcc
def test_one_configuration_is_compiled_where_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    asked = ("compile", "softmax", "--arch", "sm_90", "--dtype", "float32", "--db", str(path))
    (built,) = rows(*asked, "--configuration", V3)
    assert (built["version"], built["instances"]) == ("v3", 1)
    with Database(path, mode="read") as database:
        (stored,) = database.select("SELECT version, parameters FROM stored_instances")
    assert json.loads(stored["parameters"]) == {"block": 384, "vector": 4, "unroll": 4}
    assert "give one of them" in refused(*asked, "--configuration", V3, "--version", "v3")
    assert "is not a value of softmax v3" in refused(*asked, "--configuration", "v3 block 7, vector 4, unroll 4")


def test_a_block_is_shown_keeps_a_kernel_from_being_best_and_is_taken_away(shipped: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(shipped.read_bytes())
    db = ("--db", str(path))
    (best,) = rows("inspect", "best", "--size", "4096x4096", "--dtype", "float32", *db)
    chosen = f"{best['version']} " + ", ".join(f"{name}={value}" for name, value in best["parameters"].items())
    said("block", "softmax", chosen, "--why", "it hums", "--size", "4096x4096", *db)
    assert (4096, "it hums") in [(row["rows"], row["reason"]) for row in rows("inspect", "blocked", *db)]
    (now,) = rows("inspect", "best", "--size", "4096x4096", "--dtype", "float32", *db)
    assert (now["version"], now["parameters"]) != (best["version"], best["parameters"])
    assert (now["state"], now["time_us"]) == ("confirmed", pytest.approx(best["time_us"], rel=0.02))
    asked = ("explain", "softmax", "4096x4096", "--device", "NVIDIA H200", *db)
    story = rows(*asked)
    assert (story[0]["tier"], story[0]["version"], story[0]["parameters"]) == ("exact", now["version"], now["parameters"])
    (used,) = [row for row in story if row["verdict"].startswith("chosen")]  # the same, where it travels compiled
    assert (used["version"], used["parameters"]) != (best["version"], best["parameters"])
    assert "settled again" in said("unblock", "softmax", chosen, *db)
    (again,) = rows("inspect", "best", "--size", "4096x4096", "--dtype", "float32", *db)
    assert (again["version"], again["parameters"], again["state"]) == (best["version"], best["parameters"], "confirmed")
    assert "it hums" not in [row["reason"] for row in rows("inspect", "blocked", *db)]
    assert "is not blocked" in refused("unblock", "softmax", chosen, *db)


def test_a_block_of_a_kernel_that_has_changed_since_is_stale(tmp_path: Path) -> None:
    path = write_database(tmp_path / "x.sqlite", [(4096, 4096, V3_256)])
    said("block", "softmax", V3, "--why", "it hums", "--db", str(path))
    assert [(row["reason"], row["state"]) for row in rows("inspect", "blocked", "--db", str(path))] == [("it hums", "blocked")]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE templates SET sha = ?", ("0" * 64,))
    assert [(row["reason"], row["state"]) for row in rows("inspect", "blocked", "--db", str(path))] == [("it hums", "stale")]


def test_every_configuration_is_unblocked_by_one_command_or_one_of_them_by_its_name(tmp_path: Path) -> None:
    path = write_database(tmp_path / "x.sqlite", [(4096, 4096, V3_256), (64, 4096, V3_256)])
    db = ("--db", str(path))
    for size in ("4096x4096", "64x4096"):
        said("block", "softmax", str(V3_256), "--why", "it hums", "--size", size, *db)
    said("block", "softmax", V3, "--why", "it rattles", *db)
    assert "name one CONFIGURATION to unblock, or give --all" in refused("unblock", "softmax", *db)
    assert "name one CONFIGURATION to unblock, or give --all" in refused("unblock", "softmax", V3, "--all", *db)
    assert "is not blocked for 64x4096 alone on NVIDIA H200" in refused("unblock", "softmax", V3, "--size", "64x4096", *db)
    assert said("unblock", "softmax", "--all", "--size", "64x4096", *db) == (
        "1 configuration may be selected again on NVIDIA H200, by its times, so no sweep need try it again; "
        "1 problem that this may change was settled again\n"
        f"64x4096 now runs {V3_256}, tier exact\n"
    )
    assert [row["rows"] for row in rows("inspect", "blocked", *db)] == [4096, None]
    assert said("unblock", "softmax", "--all", *db).startswith(
        "2 configurations may be selected again on NVIDIA H200, and the next sweep tries them again, but for 1 that has a time already; "
    )
    assert rows("inspect", "blocked", *db) == []
    assert "no configuration of softmax float32 is blocked on NVIDIA H200" in refused("unblock", "softmax", "--all", *db)
    said("block", "softmax", V3, "--why", "it rattles still", *db)
    assert [row["reason"] for row in rows("inspect", "blocked", *db)] == ["it rattles still"]
    assert said("unblock", "softmax", V3, *db) == f"{V3} may be selected again on NVIDIA H200, and the next sweep tries it again\n"


def test_pruning_what_failed_says_what_stays_blocked(small: Path) -> None:
    pruned = ("prune", "--failed", "--db", str(small))
    assert "blocked" not in said(*pruned)
    with Database(small) as db:
        db.block(DEVICE, "softmax", SLOW, SOURCE.sha, "float32", "timeout twice")
    stays = "1 configuration of what failed stays blocked, so that no sweep tries it again"
    assert stays in said(*pruned)
    assert "blocked" not in said("prune", "--superseded", "--db", str(small))
    assert stays in said(*pruned, "--yes")
    assert [row["reason"] for row in rows("inspect", "blocked", "--db", str(small))] == ["timeout twice"]


def test_a_block_without_anything_else_to_run_stays_one_after_a_rebuild_and_goes_with_it(tmp_path: Path) -> None:
    path = write_database(tmp_path / "x.sqlite", [(4096, 4096, V3_256), (64, 4096, V3_256)])
    db = ("--db", str(path))
    said("block", "softmax", str(V3_256), "--why", "it hums", "--size", "4096x4096", *db)
    said("rebuild", *db)
    assert [(row["rows"], row["state"]) for row in rows("inspect", "best", *db)] == [(64, "confirmed"), (4096, "blocked")]
    said("unblock", "softmax", str(V3_256), *db)
    assert [row["state"] for row in rows("inspect", "best", *db)] == ["confirmed"] * 2


def test_what_follows_from_trials_that_are_pruned_follows_from_those_that_are_left(tmp_path: Path) -> None:
    path = write_database(tmp_path / "x.sqlite", [(4096, 4096, V3_256), (64, 4096, V3_256)])
    with Database(path) as db:
        run = db.begin_run(H200, ENVIRONMENT, COLD)
        sha = templates_here(load("softmax"))["v2"]
        rival = db.record(run, PROBLEM, V2, sha, Outcome.OK, rounds=[Round("final", (11.0, 11.1, 11.2), 4)], replayed=True)
        with db.write() as connection:
            second = connection.execute("SELECT configuration FROM trials WHERE id = ?", (rival,)).fetchone()[0]
            named = "runner_up = ?, runner_up_us = 11, gap = 0.1, beyond_noise = 1, tried = 261"
            connection.execute(f"UPDATE best SET {named} WHERE problem = (SELECT problem FROM trials WHERE id = ?)", (second, rival))
    untouched, before = rows("inspect", "best", "--db", str(path))
    assert before["beyond_noise"] is True
    assert "1 problem was settled again" in said("prune", "--replayed", "--yes", "--db", str(path))
    left, now = rows("inspect", "best", "--db", str(path))
    assert (now["runner_up"], now["runner_up_us"], now["gap"], now["beyond_noise"], now["trials"]) == (None, None, None, None, 1)
    assert left == untouched


def test_our_own_t4_is_said_to_be_for_export_only(small: Path, tmp_path: Path) -> None:
    target = tmp_path / "trials.json"
    said("export", "--t4", str(target), "--db", str(small))
    sentence = refused("import", str(target), "--db", str(tmp_path / "new.sqlite"))
    assert "is a T4 document, which is for export only" in sentence
    assert "nothing was imported" in sentence


@pytest.mark.parametrize("command", [("report", "--html", "x.html"), ("export", "--t4", "x.json"), ("explain", "softmax", "4x4")])
def test_a_device_that_is_not_there_is_a_mistake_wherever_it_is_named(command: tuple[str, ...], small: Path) -> None:
    sentence = refused(*command, "--device", "test gpu", "--db", str(small))
    assert "device 'test gpu' is" in sentence
    assert "'Test GPU'" in sentence


def test_of_an_operation_that_is_not_here_no_runner_up_is_named_whose_trial_is_gone(small: Path) -> None:
    said("prune", "--failed", "--yes", "--db", str(small))
    (now,) = rows("inspect", "best", "--db", str(small))
    assert (now["runner_up"], now["beyond_noise"]) == (None, None)


def test_without_a_runner_up_nothing_is_beyond_noise(tmp_path: Path) -> None:
    path = write_database(tmp_path / "x.sqlite", [(4096, 4096, V3_256)])
    said("rebuild", "--db", str(path))
    (row,) = rows("inspect", "best", "--db", str(path))
    assert (row["runner_up"], row["beyond_noise"]) == (None, None)
    assert "beyond noise" not in said("inspect", "best", "--size", "4096x4096", "--db", str(path))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("pin", "softmax", "4096x4096", "v3 block 384", "--why", "x"), "does not name each parameter of v3 once; write 'v3 block"),
        (("pin", "softmax", "4096x4096", "v3 block 7, vector 4, unroll 4", "--why", "x"), "block '7' is not a value of softmax v3; use 32"),
        (("pin", "softmax", "4096x4096", "v99 block 7", "--why", "x"), "softmax has no version 'v99'"),
        (("pin", "softmax", "4096x4096..64x64", V3, "--why", "x"), "end before they begin"),
        (("pin", "softmax", "4096x4096", V3), "--why"),
        (("pin", "softmax", "7x7", V3, "--why", "x"), "cannot run softmax 7x7 float32 on NVIDIA H200"),
        (("pin", "softmax", "64x64", V3, "--why", "x", "--device", "Abacus"), "device 'Abacus' is not known; use one of NVIDIA H200"),
        (("block", "softmax", str(load("softmax").safe), "--why", "x"), "is the kernel of last resort"),
        (("export",), "nothing to write"),
        (("export", "x.sqlite", "--size", "4x4"), "FILE is the whole database"),
        (("export", "--t4", "x.json", "--size", "5x5"), "has no such trials"),
        (("import",), "FILES"),
    ],
)
def test_a_mistake_is_one_sentence(shipped: Path, arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused(*arguments, "--db", str(shipped))


def test_an_optuna_storage_has_a_study_for_each_problem_device_and_protocol(tmp_path: Path) -> None:
    import optuna

    target = tmp_path / "optuna.sqlite"
    said("export", "--optuna", str(target), "--db", str(measured(tmp_path / "measured.sqlite")))
    names = optuna.get_all_study_names(f"sqlite:///{target}")
    assert len(names) == 14
    assert "softmax 8192x4095 float32 on Other GPU, cold rule 1" in names
    study = optuna.load_study(study_name="softmax 8192x4095 float32 on Other GPU, cold rule 1", storage=f"sqlite:///{target}")
    assert sorted({trial.state.name for trial in study.trials}) == ["COMPLETE", "FAIL"]


def test_optuna_reads_of_an_export_what_was_measured(tmp_path: Path) -> None:
    import optuna

    target = tmp_path / "optuna.sqlite"
    said("export", "--optuna", str(target), "--size", "4096x4096", "--db", str(RESULTS))
    storage = f"sqlite:///{target}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        name = "softmax 4096x4096 float32 on NVIDIA H200, cold rule 1"
        study = optuna.load_study(study_name=name, storage=storage)
        assert study.metric_names == ["time, us"]
    with Database(RESULTS, mode="read") as db:
        mine = sorted(db.trial_rows(rows=4096, cols=4096, dtype="float32"), key=lambda row: row["trial"])
    assert [trial.number for trial in study.trials] == list(range(len(mine)))
    for trial, row in zip(study.trials, mine, strict=True):
        assert trial.params == {"version": row["version"], **row["parameters"]}
        assert trial.value == row["time_us"]
        assert trial.state.name == ("PRUNED" if row["outcome"] == "pruned" else "COMPLETE")
        assert trial.user_attrs["outcome"] == row["outcome"]
    assert study.best_value == min(row["time_us"] for row in mine if row["outcome"] == "ok")
    assert "exists; export to a new file" in refused("export", "--optuna", str(target), "--db", str(RESULTS))


def test_an_export_reads_by_hand_in_readable_words(small: Path, tmp_path: Path) -> None:
    said("export", str(tmp_path / "e.sqlite"), "--db", str(small))
    connection = sqlite3.connect(f"file:{tmp_path / 'e.sqlite'}?mode=ro&immutable=1", uri=True)
    connection.row_factory = sqlite3.Row
    best = dict(connection.execute("SELECT * FROM best_kernels").fetchone())
    assert (best["device"], best["version"], best["time_us"], best["copy_us"]) == (DEVICE.name, "v3", 40.0, 36.0)
    assert best["protocol"] == COLD.name
