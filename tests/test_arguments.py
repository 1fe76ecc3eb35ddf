"""What Python code and command lines pass: of another kind it is refused in one sentence, and what comes twice counts once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import autotune
from autotune.cli import autotune as command_line
from autotune.dispatch import Dispatcher
from autotune.search import Budget
from tests.command import run

SOFTMAX = Dispatcher("softmax", device="emulator")
NAMES = "give a list of names, such as "
PAIRS = "give pairs of rows and columns, such as [(4096, 4096)]"
SEED = "give a whole number from 0 to 4294967295"

SWEPT = [
    ({"sizes": "4096x4096"}, f"sizes is '4096x4096'; {PAIRS}"),
    ({"sizes": 5}, f"sizes is 5; {PAIRS}"),
    ({"sizes": [4096]}, f"size 4096 is not a pair of whole numbers; {PAIRS}"),
    ({"sizes": (4096, 4096)}, f"size 4096 is not a pair of whole numbers; {PAIRS}"),
    ({"sizes": [("4", "64")]}, f"size ('4', '64') is not a pair of whole numbers; {PAIRS}"),
    ({"sizes": [(True, 64)]}, f"size (True, 64) is not a pair of whole numbers; {PAIRS}"),
    ({"sizes": [(0, 64)]}, "size (0, 64) has nothing to tune; rows and columns are at least 1"),
    ({"sizes": [(-1, 64)]}, "size (-1, 64) has nothing to tune; rows and columns are at least 1"),
    ({"sizes": [(1 << 20, 1 << 20)]}, "size (1048576, 1048576) has 2^40 elements or more, which no GPU holds; use a smaller one"),
    ({"dtypes": "float32"}, f"dtypes is 'float32'; {NAMES}[\"float32\"]"),
    ({"dtypes": 5}, f'dtypes is 5; {NAMES}["float32"]'),
    ({"dtypes": [np.float32]}, f"dtypes is [<class 'numpy.float32'>]; {NAMES}[\"float32\"]"),
    ({"dtypes": [["a"]]}, f"dtypes is [['a']]; {NAMES}[\"float32\"]"),
    ({"dtypes": ["double"]}, "dtype 'double' is not offered by softmax; use float32, float16, bfloat16"),
    ({"versions": "v5"}, f"versions is 'v5'; {NAMES}[\"v5\"]"),
    ({"versions": None}, f'versions is None; {NAMES}["v5"]'),
    ({"versions": [["v5"]]}, f"versions is [['v5']]; {NAMES}[\"v5\"]"),
    ({"device": 5}, "device is 5; use auto, cuda, cuda:I, emulator or recorded[:PATH[#DEVICE]]"),
    ({"device": "cuda:²"}, "device 'cuda:²' is not known; use auto, cuda, cuda:I, emulator or recorded[:PATH[#DEVICE]]"),
    ({"trials": "60"}, "trials is '60'; give a number"),
    ({"trials": 2.5}, "trials is 2.5; give a whole number from 1 to 9223372036854775807"),
    ({"trials": True}, "trials is True; give a number"),
    ({"trials": 0}, "trials 0 leaves nothing to do; give a number above 0"),
    ({"trials": None, "seconds": "1"}, "seconds is '1'; give a number"),
    ({"trials": None, "seconds": float("inf")}, "seconds inf is no limit; give a finite number, or leave it out"),
    ({"trials": None, "until_gain": 2}, "until_gain 2 is more than all there is to gain; give a share up to 1, such as 0.01"),
    ({"trials": None, "exhaustive": "no"}, "exhaustive is 'no'; give True or False"),
    ({"seed": "x"}, f"seed is 'x'; {SEED}"),
    ({"seed": -1}, f"seed is -1; {SEED}"),
    ({"seed": 1 << 32}, f"seed is 4294967296; {SEED}"),
    ({"jobs": "2"}, "jobs is '2'; give a whole number from -9223372036854775807 to 9223372036854775807"),
    ({"hang_timeout_s": "x"}, "hang_timeout_s is 'x'; give a number"),
    ({"protocol": "hot"}, "protocol is 'hot'; give 'cold' or 'warm' or None"),
    ({"db": 5}, "db is 5; give a path"),
    ({"db": ""}, "db is ''; give a path"),
    ({"db": b"x.sqlite"}, "db is b'x.sqlite'; give a path"),
    ({"db": "a\0b"}, "db is 'a\\x00b'; give a path"),
    ({"kernels": 5}, "kernels is 5; give a path"),
    ({"kernels": "/nowhere"}, "the folder '/nowhere' of kernels does not exist; name one with operations of your own, or leave it out"),
    ({"watcher": 5}, "watcher is 5; give an autotune.watch.Watcher, or leave it out"),
    ({"operation": 5}, 'operation is 5; give the name of an operation, such as "softmax"'),
    ({"operation": ["softmax"]}, "operation is ['softmax']; give the name of an operation, such as \"softmax\""),
]


@pytest.mark.parametrize(("given", "said"), SWEPT, ids=[str(given) for given, _ in SWEPT])
def test_a_sweep_refuses_an_argument_of_another_kind_and_leaves_nothing_behind(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    usual: dict[str, Any] = {"sizes": [(4, 64)], "device": "emulator", "versions": ["v2"], "trials": 1, "db": tmp_path / "x.sqlite"}
    with pytest.raises(autotune.UsageError) as caught:
        autotune.sweep(**{**usual, **given})
    assert str(caught.value) == said
    assert list(tmp_path.iterdir()) == []


ASKED: list[tuple[Callable[[], object], str]] = [
    (lambda: Dispatcher(5), 'operation is 5; give the name of an operation, such as "softmax"'),  # type: ignore[arg-type]
    (lambda: Dispatcher("softmax", db=5, device="emulator"), "db is 5; give a path"),  # type: ignore[arg-type]
    (lambda: Dispatcher("softmax", kernels=5, device="emulator"), "kernels is 5; give a path"),  # type: ignore[arg-type]
    (lambda: Dispatcher("softmax", kernels="/nowhere", device="emulator"), "the folder '/nowhere' of kernels does not exist; name one"),
    (lambda: SOFTMAX.warm(5), "shapes is 5; give shapes of arrays, such as [(4096, 4096)]"),  # type: ignore[arg-type]
    (lambda: SOFTMAX.warm((4, 4)), "shape 4 is none of an array with an axis; give"),  # type: ignore[arg-type]
    (lambda: SOFTMAX.warm([()]), "shape () is none of an array with an axis; give"),
    (lambda: SOFTMAX.warm([("4", 4)]), "shape ('4', 4) is none of an array with an axis; give"),  # type: ignore[list-item]
    (lambda: SOFTMAX.warm([(-4, 4)]), "shape (-4, 4) is none of an array with an axis; give"),
    (lambda: SOFTMAX.warm([(4, 4)], "float32"), f"dtypes is 'float32'; {NAMES}[\"float32\"]"),
    (lambda: SOFTMAX.explain("4096", 4096), "rows is '4096'; give a whole number from 0 to"),  # type: ignore[arg-type]
    (lambda: SOFTMAX.explain(4, 4.0), "cols is 4.0; give a whole number from 0 to"),  # type: ignore[arg-type]
    (lambda: SOFTMAX.explain(4, 4, ["a"]), "dtype ['a'] is not offered by softmax; use float32"),  # type: ignore[arg-type]
    (lambda: autotune.Database(None), "path is None; give a path"),  # type: ignore[arg-type]
    (lambda: autotune.Database(5), "path is 5; give a path"),  # type: ignore[arg-type]
    (lambda: autotune.Database("x.sqlite", mode="r"), "mode is 'r'; give 'read' or 'write'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("ask", "said"), ASKED, ids=[said for _, said in ASKED])
def test_a_dispatcher_and_a_database_refuse_an_argument_of_another_kind(ask: Callable[[], object], said: str) -> None:
    with pytest.raises(autotune.UsageError) as caught:
        ask()
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("question", "given", "said"),
    [
        ("best", {"rows": "4096"}, "rows is '4096'; give a whole number from 0 to 9223372036854775807"),
        ("best", {"rows": (4, 64)}, "rows is (4, 64); give a whole number from 0"),
        ("best", {"cols": 10**30}, f"cols is {10**30}; give a whole number from 0"),
        ("best", {"operation": ["softmax"]}, "operation is ['softmax']; give a text, or None for all"),
        ("best", {"dtype": 5}, "dtype is 5; give a text, or None for all"),
        ("best", {"device": "\ud800"}, "device is '\\ud800'; give text in UTF-8"),
        ("best_per_version", {"version": 5}, "version is 5; give a text, or None for all"),
        ("trial_rows", {"outcome": 5}, "outcome is 5; give a text, or None for all"),
        ("trial_rows", {"limit": "5"}, "limit is '5'; give a whole number from"),
        *((name, {"operation": 5}, "operation is 5; give a text") for name in ("problems", "devices", "versions", "misses", "pins")),
        ("export", {"path": 5}, "path is 5; give a path"),
        ("import_from", {"path": None}, "path is None; give a path"),
    ],
)
def test_questions_of_another_kind_are_refused_and_not_answered_with_nothing(
    question: str, given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with autotune.Database(tmp_path / "x.sqlite", create=True) as database, pytest.raises(autotune.UsageError) as caught:
        getattr(database, question)(**given)
    assert str(caught.value).startswith(said)


def test_whole_numbers_of_numpy_and_iterables_of_any_kind_are_accepted(tmp_path: Path) -> None:
    summary = autotune.sweep(
        "softmax",
        sizes=((np.int64(rows), 64) for rows in (4, 5)),  # type: ignore[misc]
        dtypes={"float32": 1, "float16": 2},
        versions=("v2", "v2"),
        device="emulator",
        trials=np.int32(1),  # type: ignore[arg-type]
        seed=np.int64(1),  # type: ignore[arg-type]
        db=str(tmp_path / "x.sqlite"),
    )
    assert [str(done.problem) for done in summary.problems] == [
        f"softmax {rows}x64 {dtype}" for dtype in ("float32", "float16") for rows in (4, 5)
    ]
    with autotune.Database(tmp_path / "x.sqlite") as database:
        assert len(database.best("softmax", np.int64(4), dtype="float16")) == 1  # type: ignore[arg-type]
    assert Budget(trials=np.int64(3)).trials == 3  # type: ignore[arg-type]


def test_every_option_that_may_be_repeated_takes_each_value_once() -> None:
    found = []
    for name in command_line.list_commands(click.Context(command_line)):
        command = command_line.get_command(click.Context(command_line), name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option) and option.multiple:
                found.append(option.name)
                assert option.process_value(click.Context(command), ("b", "a", "b")) == ("b", "a"), (name, option.name)
    assert {"sizes", "dtypes", "versions", "archs", "wanted"} <= set(found)


def test_a_size_and_a_version_that_are_named_twice_are_tuned_once(tmp_path: Path) -> None:
    (tmp_path / "sizes").write_text("4x64\n04x064\n4x64 # again\n")
    twice = ("--version", "v2", "--size", "4x64", "--dtype", "float32")
    common = ("--device", "emulator", "--db", str(tmp_path / "x.sqlite"), "--trials", "2", "--json")
    status, out, err = run("sweep", "softmax", *twice, *twice, "--sizes", str(tmp_path / "sizes"), *common)
    assert status == 0, err
    steps = [json.loads(line) for line in out.splitlines()]
    assert [step["space"] for step in steps if step["event"] == "problem"] == [30]
