"""Kernel Tuner's cache files come in whole, cut short or packed, once; T4 documents are as its published schemas have it."""

import gzip
import json
import statistics
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.catalogue import load
from autotune.database import Database
from autotune.database.kernel_tuner import import_cache
from autotune.database.kernel_tuner_cache import read_cache
from autotune.database.keys import KERNEL_TUNER
from autotune.database.vetting import vet
from autotune.dispatch.knowledge import read as knowledge_of
from autotune.dispatch.store import Layer
from autotune.errors import UsageError
from autotune.trial import Outcome
from tests.command import refused, rows, run, said
from tests.database_samples import DEVICE
from tests.report_samples import measured
from tests.test_sharing_faults import altered

SCHEMAS = Path(__file__).parent / "data" / "t4"
HEADER = {
    "device_name": "NVIDIA RTX A4000",
    "kernel_name": "vector_add",
    "problem_size": [1024, 8, 2],
    "tune_params_keys": ["block_size_x", "use_padding"],
    "tune_params": {"block_size_x": [64, 128, 256, 512], "use_padding": [0, 1]},
    "objective": "time",
    "cache": {},
}
# Kernel Tuner up to 1.4 put the error's name in place of the time, 1.5 beside it; very old ones wrote 1e20.
FAILED: list[tuple[dict[str, Any], Outcome]] = [
    ({"time": "InvalidConfig"}, Outcome.NOT_APPLICABLE),
    ({"time": "CompilationFailedConfig"}, Outcome.COMPILE_ERROR),
    ({"__error__": "RuntimeFailedConfig", "times": [1.0]}, Outcome.LAUNCH_ERROR),
    ({"time": 1e20}, Outcome.LAUNCH_ERROR),
]


def entry(block: int, padding: int, **said_: Any) -> dict[str, Any]:
    return {"block_size_x": block, "use_padding": padding, **said_, "timestamp": "2023-12-22 09:53:48.691683+00:00"}


def timed(block: int, padding: int, *times_ms: float) -> dict[str, Any]:
    return entry(block, padding, time=statistics.fmean(times_ms), times=list(times_ms), compile_time=900.0)


ENTRIES = [timed(64, 0, 0.5, 0.4, 0.4), timed(128, 0, 0.2, 0.2, 0.3), *(entry(512, 1, **failed) for failed, _ in FAILED[:1])]


def written(path: Path, entries: list[dict[str, Any]], closed: bool = True) -> Path:
    """A cache file as Kernel Tuner writes it: the header, a line for each configuration, and no end while it runs."""
    lines = [json.dumps({f"{e['block_size_x']},{e['use_padding']}": e})[1:-1] + "," for e in entries]
    text = json.dumps(HEADER, indent="")[:-3] + "".join(f"\n{line}" for line in lines)
    path.write_text(text.rstrip(",") + "}\n}" if closed else text)
    return path


def imported(path: Path, *files: Path) -> str:
    with Database(path, create=True) as db:
        for file in files:
            import_cache(db, read_cache(file))
        assert db.select("PRAGMA foreign_key_check") == []
        return db.content_hash()


def test_a_cache_becomes_trials_and_a_best_that_are_not_taken_for_ours(tmp_path: Path) -> None:
    file, path = written(tmp_path / "cache.json", ENTRIES), str(tmp_path / "x.sqlite")
    (brought,) = rows("import", str(file), "--db", path)
    assert (brought["trials"], brought["best"]) == (3, 1)
    (best,) = rows("inspect", "best", "--db", path)
    assert (best["device"], best["operation"], best["rows"], best["cols"]) == ("NVIDIA RTX A4000", "vector_add", 16, 1024)
    assert (best["version"], best["parameters"]) == (KERNEL_TUNER, {"block_size_x": 128, "use_padding": 0})
    assert best["time_us"] == pytest.approx(200)
    assert (best["origin"], best["protocol"], best["fraction_of_copy"], best["gb_per_s"]) == ("imported", "kernel_tuner", None, None)
    trials = {row["parameters"]["block_size_x"]: row for row in rows("inspect", "trials", "--db", path)}
    assert trials[64]["time_us"] == pytest.approx(400)
    assert trials[64]["created"] == "2023-12-22T09:53:48.691Z"
    assert trials[512]["outcome"] == "not_applicable"
    assert rows("rebuild", "--db", path) == [{"settled": 0, "stale": 0, "unknown": 1, "selectors": 0, "trained": []}]


@pytest.mark.parametrize(("failed", "outcome"), FAILED)
def test_each_kind_of_failure_is_an_outcome(tmp_path: Path, failed: dict[str, Any], outcome: Outcome) -> None:
    imported(tmp_path / "x.sqlite", written(tmp_path / "cache.json", [entry(64, 0, **failed)]))
    with Database(tmp_path / "x.sqlite", mode="read") as db:
        (row,) = db.trial_rows()
        assert (row["outcome"], row["time_us"], db.best()) == (outcome.value, None, [])
        assert row["message"].startswith("Kernel Tuner says ")


def test_importing_again_adds_nothing_and_a_cache_that_has_grown_adds_what_is_new(tmp_path: Path) -> None:
    first, grown = written(tmp_path / "1.json", ENTRIES[:1], closed=False), written(tmp_path / "2.json", ENTRIES)
    once, path = imported(tmp_path / "once", grown), tmp_path / "x.sqlite"
    assert imported(path, first) != once
    assert imported(path, grown, grown, first, grown)
    with Database(path) as db:
        assert len(db.trial_rows()) == 3
        assert import_cache(db, read_cache(grown)) == {"trials": 0, "best": 0}


def test_the_best_of_two_caches_of_one_problem_is_the_same_whichever_comes_first(tmp_path: Path) -> None:
    later = {"timestamp": "2024-01-05 00:00:00.000000+00:00"}
    lines = [timed(64, 0, 0.5), timed(128, 1, 0.2), timed(256, 0, 0.4) | later, timed(512, 0, 0.2), timed(128, 1, 0.3, 0.3)]
    left, right = written(tmp_path / "1.json", lines[:2]), written(tmp_path / "2.json", lines[2:])
    assert imported(tmp_path / "12", left, right) == imported(tmp_path / "21", right, left, right)
    for path in (tmp_path / "12", tmp_path / "21"):
        with Database(path, mode="read") as db:
            (best,) = db.best()
            assert (best["parameters"]["block_size_x"], best["time_us"]) == (512, pytest.approx(200))
            assert db.select("SELECT tried FROM best") == [{"tried": 5}]


@pytest.mark.parametrize(
    "spoilt", ["rounds SET samples_us = '[1,'", "rounds SET samples_us = '[-1.0]'", "configurations SET parameters = 'x'"]
)
def test_what_was_spoilt_since_is_passed_over_when_more_comes_in(tmp_path: Path, spoilt: str) -> None:
    path = tmp_path / "x.sqlite"
    imported(path, written(tmp_path / "1.json", ENTRIES[1:2]))
    altered(path, f"UPDATE {spoilt}")
    status, _, err = run("import", str(written(tmp_path / "2.json", ENTRIES[:1])), "--db", str(path))
    assert (status, err.count("cannot be used and is left out")) == (0, 1), err
    with Database(path, mode="read") as db:
        assert [row["parameters"]["block_size_x"] for row in db.best()] == [64]


def test_imported_caches_travel_like_everything_else(tmp_path: Path) -> None:
    content = imported(tmp_path / "x.sqlite", written(tmp_path / "cache.json", ENTRIES))
    said("export", str(tmp_path / "e.sqlite"), "--db", str(tmp_path / "x.sqlite"))
    with Database(tmp_path / "y.sqlite", create=True) as db:
        db.import_from(tmp_path / "e.sqlite")
        assert db.content_hash() == content


def test_a_kernel_of_a_shipped_name_is_not_stale_for_having_no_template(tmp_path: Path) -> None:
    path, cache = tmp_path / "x.sqlite", written(tmp_path / "cache.json", ENTRIES)
    cache.write_text(cache.read_text().replace('"vector_add"', '"softmax"'))
    imported(path, cache)
    db = ("--db", str(path))
    for _ in range(2):
        assert [(row["operation"], row["state"]) for row in rows("inspect", "best", *db)] == [("softmax", "provisional")]
        assert [row["trials"] for row in rows("prune", "--stale", *db)] == [0]
        said("rebuild", *db)


def test_the_dispatcher_takes_nothing_from_a_cache(tmp_path: Path) -> None:
    file = written(tmp_path / "cache.json", ENTRIES)
    file.write_text(file.read_text().replace("vector_add", "softmax").replace("NVIDIA RTX A4000", DEVICE.name))
    imported(tmp_path / "x.sqlite", file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is no size that another sweep would bring back
        assert knowledge_of([Layer(tmp_path / "x.sqlite")], load("softmax"), DEVICE).tuned == ()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 10_000))
def test_a_file_cut_anywhere_gives_its_whole_lines_or_one_sentence(tmp_path: Path, at: int) -> None:
    text = written(tmp_path / "whole.json", ENTRIES, closed=False).read_text()
    cut = text[: at % (len(text) + 1)]
    (tmp_path / "cut.json").write_text(cut)
    if '"cache": {' not in cut:
        with pytest.raises(UsageError, match=r"\A[^\n]+\Z"):
            read_cache(tmp_path / "cut.json")
    else:
        cache = read_cache(tmp_path / "cut.json")
        assert list(cache.entries) == ENTRIES[: len(cache.entries)]
        assert len(cache.entries) >= cut.count('"},\n')


def test_a_packed_cache_is_read_and_a_cut_one_says_so(tmp_path: Path) -> None:
    text = written(tmp_path / "whole.json", ENTRIES, closed=False).read_text()
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(text[:-30].encode()))
    (brought,) = rows("import", str(tmp_path / "cut.json.gz"), "--db", str(tmp_path / "x.sqlite"))
    assert brought["trials"] == 2
    assert brought["note"] == "Kernel Tuner: vector_add 16x1024 float32 on NVIDIA RTX A4000; its last line was cut short and is left out"


LONG = "x" * 201
HUGE = 10**308 * 10


WRONG: dict[str, list[Any]] = {
    "problem_size": [
        "callable",
        "4096",
        "",
        True,
        [True, 4],
        ["8", 4],
        -4,
        [-4, 4],
        0,
        [],
        2.0,
        None,
        HUGE,
        [4, {}],
        float("nan"),
        [2**40],
    ],
    "device_name": ["", "  ", LONG, "\u00e9" * 101, 7, None, ["a"], "half \ud800"],
    "kernel_name": ["", LONG, True, {}],
    "tune_params_keys": [None, "ab", {"a": 1}, [""], [LONG], [1], ["block_size_x", "block_size_x"], ["absent"]],
    "cache": [None, [1, 2], "x", {"a": 1}, {"a": [["time", 1]]}, {"a": None}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_what_a_cache_must_say_and_does_not_is_one_sentence(tmp_path: Path, name: str, value: Any) -> None:
    document = HEADER | {"cache": {"64,0": timed(64, 0, 0.5)}}
    for said_ in (document | {name: value}, {key: word for key, word in document.items() if key != name}):
        (tmp_path / "x.json").write_text(json.dumps(said_))
        sentence = refused("import", str(tmp_path / "x.json"), "--db", str(tmp_path / "x.sqlite"))
        assert "x.json is not a cache file of Kernel Tuner" in sentence
        assert len(sentence) < 1000
        assert not (tmp_path / "x.sqlite").exists()


@pytest.mark.parametrize("value", [HUGE, 2**63, None, [1], {"a": 1}, float("inf"), float("nan")])
def test_a_value_that_no_parameter_has_is_one_sentence(tmp_path: Path, value: object) -> None:
    line = timed(64, 0, 0.5) | {"block_size_x": value}
    (tmp_path / "x.json").write_text(json.dumps(HEADER | {"cache": {"a": line}}))
    with pytest.raises(UsageError, match="neither a text nor a finite number of at most 64 bits"):
        read_cache(tmp_path / "x.json")


@pytest.mark.parametrize(
    "wrong",
    [
        *({"time": time} for time in (True, -1.0, 0, "0.5", None, float("nan"), float("inf"), HUGE, 1e-9, 1e10, [0.5], {"ms": 0.5})),
        *({"times": times} for times in ([0.5, True], [-0.5], [0.5, None], ["0.5"], "0.5", [float("nan")], [HUGE], [1e-9], {"a": 1}, True)),
        {"__error__": "x" * 10_000},
    ],
)
def test_a_time_that_is_none_is_a_failure_in_one_sentence(tmp_path: Path, wrong: dict[str, Any]) -> None:
    (tmp_path / "x.json").write_text(json.dumps(HEADER | {"cache": {"64,0": timed(64, 0, 0.5) | wrong}}))
    imported(tmp_path / "x.sqlite", tmp_path / "x.json")
    with Database(tmp_path / "x.sqlite", mode="read") as db:
        (row,) = db.trial_rows()
        assert (row["outcome"], row["time_us"], db.best()) == ("launch_error", None, [])
        assert row["message"].startswith("Kernel Tuner says ")
        assert len(row["message"]) < 600
        assert "\n" not in row["message"]


@pytest.mark.parametrize(
    ("written_", "stored"),
    [
        ("2023-12-22 09:53:48.691683+00:00", "2023-12-22T09:53:48.691Z"),
        ("2023-12-22T11:53:48+02:00", "2023-12-22T09:53:48.000Z"),
        ("2023-12-22 09:53:48", "2023-12-22T09:53:48.000Z"),
        *((nothing, "") for nothing in ("", "yesterday", 7, None, "0001-01-01T00:00:00+14:00")),
    ],
)
def test_when_a_line_was_written_is_in_utc_or_unknown(tmp_path: Path, written_: object, stored: str) -> None:
    (tmp_path / "x.json").write_text(json.dumps(HEADER | {"cache": {"64,0": timed(64, 0, 0.5) | {"timestamp": written_}}}))
    imported(tmp_path / "x.sqlite", tmp_path / "x.json")
    with Database(tmp_path / "x.sqlite", mode="read") as db:
        assert [row["created"] for row in db.trial_rows()] == [stored]


def test_a_line_from_the_future_would_stand_for_good_and_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(HEADER | {"cache": {"64,0": timed(64, 0, 0.5) | {"timestamp": "9999-01-01 00:00:00"}}}))
    with pytest.raises(UsageError, match="timestamp 9999-01-01 00:00:00 lies in the future"):
        read_cache(tmp_path / "x.json")


TOKENS = [
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 400,
    b"true",
    b"null",
    b'"',
    b"{",
    b"[" * 3000,
    b"]",
    b"}",
    b":",
    b",",
    b"\xff",
    b"\\ud800",
    b"-1",
]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["time", "times", "block_size_x", "x"]), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(st.sampled_from([*HEADER, "other"]), anything),
    st.dictionaries(st.sampled_from(["time", "times", "timestamp", "block_size_x", "__error__"]), anything),
)
def test_whatever_a_cache_holds_it_is_imported_or_refused_in_one_sentence(
    tmp_path: Path, header: dict[str, Any], line: dict[str, Any]
) -> None:
    document = HEADER | {"cache": {"64,0": {**timed(64, 0, 0.5), **line}}} | header
    (tmp_path / "x.json").write_text(json.dumps(document))
    try:
        cache = read_cache(tmp_path / "x.json")
    except UsageError:
        return
    with Database(tmp_path / "x.sqlite", create=True) as db:
        import_cache(db, cache)
        assert all(row["time_us"] > 0 for row in db.trial_rows() if row["outcome"] == "ok")
        vet(db._connection, tmp_path / "x.sqlite")  # an export of it can be imported


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 12), st.binary(max_size=4) | st.sampled_from(TOKENS)), min_size=1, max_size=4)
)
def test_bytes_that_were_changed_are_imported_or_refused_in_one_sentence(tmp_path: Path, changes: list[tuple[int, int, bytes]]) -> None:
    data = written(tmp_path / "whole.json", ENTRIES).read_bytes()
    for at, length, new in changes:
        data = data[: at % len(data)] + new + data[at % len(data) + length :] or b" "
    (tmp_path / "x.json").write_bytes(data)
    cache = None
    with suppress(UsageError):
        cache = read_cache(tmp_path / "x.json")
    if cache is None:
        with pytest.raises(UsageError, match=r"\A[^\n]{1,900}\Z"):
            read_cache(tmp_path / "x.json")
        return
    with Database(tmp_path / "y.sqlite", create=True) as db:
        import_cache(db, cache)
        vet(db._connection, tmp_path / "y.sqlite")


def test_a_packed_file_that_is_damaged_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(b"{}" * 100)[:-12])
    assert "x.json.gz cannot be read" in refused("import", str(tmp_path / "x.json.gz"), "--db", str(tmp_path / "x.sqlite"))


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}-schema.json").read_text())


def test_a_t4_document_is_as_both_published_schemas_have_it(tmp_path: Path) -> None:
    path, target = measured(tmp_path / "x.sqlite"), tmp_path / "t4.json"
    said("export", "--t4", str(target), "--db", str(path))
    document = json.loads(target.read_text())
    jsonschema.validate(document, schema("results"))
    jsonschema.validate(document, schema("metadata"))
    with Database(path, mode="read") as db:
        trials = sorted(db.trial_rows(), key=lambda row: row["trial"])
    assert len(document["results"]) == len(trials)
    for result, row in zip(document["results"], trials, strict=True):
        assert result["configuration"] == {"version": row["version"], **row["parameters"]}
        assert result["problem"]["rows"] == row["rows"]
        right = row["outcome"] == "ok"
        assert (result["invalidity"] == "correct", result["correctness"]) == (right, int(right))
        if right:
            assert statistics.median(result["times"]["runtimes"]) == pytest.approx(row["time_us"] / 1e3)
            assert {"name": "time", "value": row["time_us"] / 1e3, "unit": "ms"} in result["measurements"]
    assert document["metadata"]["environment"]["requirements"] == ["pycuda-autotune==0.1.0", "pycuda==2026.1"]


def test_the_published_schema_refuses_what_is_not_t4(tmp_path: Path) -> None:
    path, target = measured(tmp_path / "x.sqlite"), tmp_path / "t4.json"
    said("export", "--t4", str(target), "--size", "1x1024", "--dtype", "float32", "--device", DEVICE.name, "--db", str(path))
    document = json.loads(target.read_text())
    assert {result["problem"]["cols"] for result in document["results"]} == {1024}
    del document["results"][0]["invalidity"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema("results"))


def test_every_outcome_has_a_word_in_t4() -> None:
    from autotune.database.t4 import INVALIDITY

    assert set(INVALIDITY) == set(Outcome)
    allowed = schema("results")["properties"]["results"]["items"]["properties"]["invalidity"]["enum"]
    assert set(INVALIDITY.values()) <= set(allowed)
