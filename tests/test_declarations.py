"""Nonsense in a definition: one sentence that names the file, what came and what is accepted, where it is loaded or first asked."""

import json
import sys
from pathlib import Path

import pytest

from autotune import catalogue
from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import EMULATOR
from autotune.errors import UsageError
from autotune.operation import MOST_PROPOSALS
from autotune.problem import Problem
from tests.command import refused, run
from tests.test_declared import TEMPLATE

OPERATION = {
    "TOLERANCES": '{"float32": Tolerance(relative=1e-6, absolute=1e-37)}',
    "SAFE": '("v0", {"block": 32})',
    "reference": "lambda x: 2 * x",
    "bytes_moved": "lambda problem: 2 * problem.rows * problem.bytes_per_row",
    "default": 'lambda problem, device: [("v0", {"block": 32})]',
    "fit": "lambda version, parameters, problem, declared: dict()",
    "FITTED": "{}",
    "SHARED_AMONG": '{"v0": "block"}',
}
VERSION = {
    "TEMPLATE": '"v0.cu"',
    "PARAMETERS": '{"block": (32, 64)}',
    "DTYPES": '("float32",)',
    "IN_PLACE": "True",
    "LEAST_COMPUTE_CAPABILITY": "(7, 5)",
    "bounds": "lambda configuration: Bounds(threads=configuration.integer('block'))",
    "applicable": "lambda configuration, problem, device: all_of()",
    "launch": "lambda configuration, problem, device: Launch(blocks=problem.rows)",
}
PROBLEM = Problem("twice", 4, 64)
FIRST = Configuration.of("v0", block=32)


def written(kernels: Path, **other: str) -> Path:
    folder = kernels / "twice"
    folder.mkdir()
    for file, imports, said in (
        ("operation.py", "from autotune.operation import Tolerance", OPERATION),
        ("v0.py", "from autotune.definition import Bounds, Launch, Verdict, all_of", VERSION),
    ):
        lines = [f"{name} = {other.get(name, value)}" for name, value in said.items()]
        (folder / file).write_text("\n".join([imports, *lines, ""]))
    (folder / "v0.cu").write_text('#include "common.cuh"\n')
    return folder


AT_LOADING = [
    ("TEMPLATE", "7", "7; give the name of a file"),
    ("TEMPLATE", "''", "''; give the name of a file"),
    ("PARAMETERS", '{"block": 32}', "{'block': 32}; give each name a tuple"),
    ("PARAMETERS", '{"block": (-1,)}', "{'block': (-1,)}; give each name a tuple"),
    ("PARAMETERS", '{"block": (32.0,)}', "{'block': (32.0,)}; give each name a tuple"),
    ("PARAMETERS", '{"block": (True,)}', "{'block': (True,)}; give each name a tuple"),
    ("PARAMETERS", '{"a block": (32,)}', "{'a block': (32,)}; give each name a tuple"),
    ("PARAMETERS", '{"block": (0x' + "f" * 4300 + ",)}", "a value too long to be shown; give each name a tuple"),
    ("PARAMETERS", '{"block": (2**63,)}', "{'block': (9223372036854775808,)}; give each name a tuple"),
    (
        "PARAMETERS",
        '{"block": (64, 64, 128), "unroll": (1, 2)}',
        "{'block': (64, 64, 128), 'unroll': (1, 2)}; give each value of block once",
    ),
    ("DTYPES", '"float32"', "'float32'; give a tuple of names from float32, float16, bfloat16"),
    ("DTYPES", '("double",)', "('double',); give a tuple of names from"),
    ("DTYPES", "()", "(); give a tuple of names from"),
    ("DTYPES", "([],)", "([],); give a tuple of names from"),
    ("DTYPES", '("float32", "float16")', "('float32', 'float16'); TOLERANCES of its operation has none for float16"),
    ("IN_PLACE", '"yes"', "'yes'; give True or False"),
    ("IN_PLACE", "1", "1; give True or False"),
    ("LEAST_COMPUTE_CAPABILITY", '"x"', "'x'; give two whole numbers, such as (8, 0)"),
    ("LEAST_COMPUTE_CAPABILITY", "8.0", "8.0; give two whole numbers"),
    ("LEAST_COMPUTE_CAPABILITY", "(8,)", "(8,); give two whole numbers"),
    ("launch", "7", "7; give a function"),
    ("bounds", "Bounds(32)", "Bounds(threads=32, blocks_per_sm=1, cluster=1); give a function"),
    ("applicable", "None", "None; give a function"),
    ("reference", "2", "2; give a function"),
    ("bytes_moved", "8", "8; give a function"),
    ("default", "('v0',)", "('v0',); give a function"),
    ("fit", "{}", "{}; give a function"),
    ("TOLERANCES", '{"float32": (1e-6, 1e-37)}', "{'float32': (1e-06, 1e-37)}; give some of float32, float16, bfloat16 a Tolerance"),
    ("TOLERANCES", '{"float32": Tolerance(float("nan"), 0)}', "{'float32': Tolerance(relative=nan, absolute=0)}; give some of"),
    ("TOLERANCES", '{"float32": Tolerance(1e-6, float("inf"))}', "{'float32': Tolerance(relative=1e-06, absolute=inf)}; give some of"),
    ("TOLERANCES", '{"float32": Tolerance(-1e-6, 0)}', "{'float32': Tolerance(relative=-1e-06, absolute=0)}; give some of"),
    ("TOLERANCES", '{"float32": Tolerance(10**400, 0)}', "{'float32': Tolerance(relative=1000"),
    ("TOLERANCES", '{"double": Tolerance(1e-6, 0)}', "{'double': Tolerance(relative=1e-06, absolute=0)}; give some of"),
    ("TOLERANCES", "{}", "{}; give some of"),
    ("SAFE", '"v0"', "'v0'; give a version and its parameters"),
    ("SAFE", '("v0", {"block": 33})', "('v0', {'block': 33}); give each parameter of v0 one of its values (block: 32, 64)"),
    ("SAFE", '("v0", {"block": 32.0})', "('v0', {'block': 32.0}); give each parameter of v0 one of its values"),
    ("SAFE", '("v0", {})', "('v0', {}); give each parameter of v0 one of its values"),
    ("SAFE", '("v0", {"block": 32, "unroll": 1})', "('v0', {'block': 32, 'unroll': 1}); give each parameter"),
    ("FITTED", '{"v0": "block"}', "{'v0': 'block'}; give versions a tuple of names of their parameters"),
    ("FITTED", '{"v0": (1,)}', "{'v0': (1,)}; give versions a tuple of names of their parameters"),
    ("SHARED_AMONG", '{"v0": ("block",)}', "{'v0': ('block',)}; give versions the name of one of their parameters"),
    ("SHARED_AMONG", "[]", "[]; give versions the name of one of their parameters"),
]


@pytest.mark.parametrize(("name", "value", "said"), AT_LOADING)
def test_what_is_declared_is_checked_where_it_is_loaded(name: str, value: str, said: str, tmp_path: Path) -> None:
    folder = written(tmp_path, **{name: value})
    with pytest.raises(UsageError) as caught:
        catalogue.load("twice", tmp_path)
    file = folder / ("v0.py" if name in VERSION else "operation.py")
    assert str(caught.value).startswith(f"{name} of {file} is {said}")


LAUNCHES = {
    "blocks='a'": "blocks of Launch is 'a'; give a whole number from 0 to 2^63 - 1",
    "blocks=float('nan')": "blocks of Launch is nan; give a whole number from 0 to 2^63 - 1",
    "blocks=4.0": "blocks of Launch is 4.0; give",
    "blocks=None": "blocks of Launch is None; give",
    "blocks=-1": "blocks of Launch is -1; give",
    "blocks=10**5000": "blocks of Launch is a value too long to be shown; give",
    "blocks=[1]": "blocks of Launch is [1]; give",
    "blocks=1, workspace_bytes=-1": "workspace_bytes of Launch is -1; give",
    "blocks=1, workspace_bytes=2.5": "workspace_bytes of Launch is 2.5; give",
    "blocks=1, workspace_bytes=10**30": f"workspace_bytes of Launch is {10**30}; give",
    "blocks=1, shared_bytes=-5": "shared_bytes of Launch is -5; give",
    "blocks=1, cooperative='yes'": "cooperative of Launch is 'yes'; give True or False",
}
BOUNDS = {
    "threads=-1": "threads of Bounds is -1; give a whole number from 1 to 2^63 - 1",
    "threads=0": "threads of Bounds is 0; give",
    "threads=64.0": "threads of Bounds is 64.0; give",
    "threads='64'": "threads of Bounds is '64'; give",
    "threads=64, blocks_per_sm=-1": "blocks_per_sm of Bounds is -1; give a whole number from 0 to",
    "threads=64, cluster=0": "cluster of Bounds is 0; give a whole number from 1 to",
}


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        *(("launch", f"lambda configuration, problem, device: Launch({what})", why) for what, why in LAUNCHES.items()),
        *(("bounds", f"lambda configuration: Bounds({what})", why) for what, why in BOUNDS.items()),
        (
            "applicable",
            "lambda configuration, problem, device: all_of((False, ''))",
            "a condition of all_of does not hold and has no reason",
        ),
        ("applicable", "lambda configuration, problem, device: all_of((False, None))", "a condition of all_of does not hold and has no"),
        ("applicable", "lambda configuration, problem, device: all_of((False, 5))", "why of Verdict is 5; give the reason as a clause"),
        ("applicable", "lambda configuration, problem, device: Verdict(problem.rows < 9)", "why of Verdict is True; give the reason"),
    ],
)
def test_what_a_function_says_is_checked_when_it_is_asked(name: str, body: str, said: str, tmp_path: Path) -> None:
    folder = written(tmp_path, **{name: body})
    with pytest.raises(UsageError) as caught:
        catalogue.load("twice", tmp_path).applicable(FIRST, PROBLEM, EMULATOR)
    assert str(folder / "v0.py") in str(caught.value)
    assert f"Error: {said}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["10**400", "10**5000", "-5", "0", "8.5", "None"])
def test_bytes_that_no_problem_moves_are_refused(value: str, tmp_path: Path) -> None:
    folder = written(tmp_path, bytes_moved=f"lambda problem: {value}")
    with pytest.raises(UsageError, match=rf"of {folder / 'operation.py'} returns .* for twice 4x64 float32; return (the number|a) "):
        catalogue.load("twice", tmp_path).bytes_moved(PROBLEM)


@pytest.mark.parametrize("value", ["['v0']", "[('v0', 32)]", "[(0, {})]", "None", "[None]", "[('v0', {'block': 10**400})]"])
def test_proposals_that_are_no_versions_with_parameters_are_refused(value: str, tmp_path: Path) -> None:
    folder = written(tmp_path, default=f"lambda problem, device: {value}")
    with pytest.raises(UsageError, match=f"of {folder / 'operation.py'} "):
        list(catalogue.load("twice", tmp_path).defaults(PROBLEM, EMULATOR))


NO_VALUES = ("[32]", "{}", "{32}", "None", "True", "32.0", "2**63", "__import__('numpy').zeros(3)", "__import__('numpy').float32(32)")


@pytest.mark.parametrize("value", NO_VALUES)
def test_what_no_parameter_may_be_is_refused_where_fit_or_default_gives_it(value: str, tmp_path: Path) -> None:
    for name, body, said in (
        ("fit", f"lambda version, parameters, problem, declared: {{'block': {value}}}", "return a dict of parameters, "),
        ("default", f"lambda problem, device: [('v0', {{'block': {value}}})]", "yield versions with parameters, "),
    ):
        (tmp_path / name).mkdir()
        folder = written(tmp_path / name, FITTED='{"v0": ("block",)}', **{name: body})
        with pytest.raises(UsageError) as caught:
            list(catalogue.load("twice", tmp_path / name).defaults(PROBLEM, EMULATOR))
        assert f" of {folder / 'operation.py'} returns " in str(caught.value)
        assert "'block': " in str(caught.value)
        assert f"; {said}a whole number of 64 bits or a name each" in str(caught.value)


def test_whole_numbers_of_numpy_are_whole_numbers_of_fit_and_default(tmp_path: Path) -> None:
    for name, body in (
        ("fit", "lambda version, parameters, problem, declared: {'block': __import__('numpy').int32(32)}"),
        ("default", "lambda problem, device: [('v0', {'block': __import__('numpy').int64(32)})]"),
    ):
        (tmp_path / name).mkdir()
        written(tmp_path / name, FITTED='{"v0": ("block",)}' if name == "fit" else "{}", **{name: body})
        (found,) = catalogue.load("twice", tmp_path / name).defaults(PROBLEM, EMULATOR)
        assert found.to_json() == FIRST.to_json()


@pytest.mark.parametrize("value", ["33", "'32'"])
def test_a_value_of_fit_that_is_not_declared_makes_no_kernel(value: str, tmp_path: Path) -> None:
    body = f"lambda version, parameters, problem, declared: {{'block': {value}}}"
    written(tmp_path, FITTED='{"v0": ("block",)}', fit=body)
    twice = catalogue.load("twice", tmp_path)
    assert twice.fitted(FIRST, PROBLEM) is None
    assert list(twice.defaults(PROBLEM, EMULATOR)) == []


@pytest.mark.parametrize("fitted", ["{}", '{"v0": ("block",)}'])
@pytest.mark.parametrize("chosen", ["{}", '{"nothing": 1}'])
def test_a_proposal_that_lacks_a_parameter_proposes_nothing(chosen: str, fitted: str, tmp_path: Path) -> None:
    written(tmp_path, FITTED=fitted, default=f'lambda problem, device: [("v0", {chosen}), ("v7", {{}})]')
    assert list(catalogue.load("twice", tmp_path).defaults(PROBLEM, EMULATOR)) == []


@pytest.mark.parametrize(("name", "count"), [("v0", MOST_PROPOSALS), ("v7", 0)])
def test_proposals_without_an_end_are_read_so_far(name: str, count: int, tmp_path: Path) -> None:
    written(tmp_path, default=f'lambda problem, device: iter(lambda: ("{name}", {{"block": 32}}), None)')
    assert list(catalogue.load("twice", tmp_path).defaults(PROBLEM, EMULATOR)) == [FIRST] * count


def test_a_launch_of_no_blocks_is_applicable_to_nothing_but_an_empty_problem(tmp_path: Path) -> None:
    written(tmp_path, launch="lambda configuration, problem, device: Launch(blocks=0)")
    twice = catalogue.load("twice", tmp_path)
    assert twice.applicable(FIRST, PROBLEM, EMULATOR).why == "launch of v0 says 0 blocks, which compute nothing"
    assert twice.applicable(FIRST, Problem("twice", 0, 64), EMULATOR)


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    import numpy as np

    assert Launch(blocks=np.int64(4), shared_bytes=np.int32(8)).blocks == 4  # type: ignore[arg-type]
    assert Bounds(threads=np.int32(64)).threads == 64  # type: ignore[arg-type]


def test_a_condition_that_holds_needs_no_reason() -> None:
    assert all_of((True, ""), (True, "unused")) == Verdict()


def test_the_shipped_operation_beside_fewer_versions_is_accepted(tmp_path: Path) -> None:
    shipped = catalogue.shipped("kernels") / "softmax"
    (tmp_path / "softmax").mkdir()
    for name in ("operation.py", "v2.py"):
        (tmp_path / "softmax" / name).write_bytes((shipped / name).read_bytes())
    assert list(catalogue.load("softmax", tmp_path).versions) == ["v2"]


@pytest.mark.parametrize("name", ["v0 copy.py", "v0-old.py", "v1_fast.py", "vector.py", "v.py", "v१.py"])
def test_a_file_that_is_named_almost_like_a_version_is_named_with_what_to_do(name: str, tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / name).write_text((folder / "v0.py").read_text())
    with pytest.raises(UsageError) as caught:
        catalogue.load("twice", tmp_path)
    assert str(caught.value).startswith(f"{folder / name} is named like no version; name it v and a number, such as v3.py, or ")
    (folder / name).rename(folder / f"other {name}")
    assert list(catalogue.load("twice", tmp_path).versions) == ["v0"]


def test_an_operation_is_named_by_an_identifier(tmp_path: Path) -> None:
    written(tmp_path).rename(tmp_path / "twice copy")
    with pytest.raises(UsageError, match=r"is named 'twice copy', which a kernel's name cannot begin with; name it by an identifier$"):
        catalogue.load("twice copy", tmp_path)


def test_a_definition_is_read_once(tmp_path: Path) -> None:
    """What it was when it was run is what its results are stored under, though it is edited at that moment."""
    folder = written(tmp_path)
    file = folder / "v0.py"
    before = file.read_bytes()
    file.write_bytes(before + b"import pathlib\npathlib.Path(__file__).write_text('edited')\n")
    loaded = catalogue.load("twice", tmp_path).version("v0")
    assert (file.read_text(), loaded.code) == ("edited", before + b"import pathlib\npathlib.Path(__file__).write_text('edited')\n")


def test_a_definition_may_make_dataclasses_with_annotations_that_are_texts(tmp_path: Path) -> None:
    file = written(tmp_path) / "v0.py"
    made = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass Share:\n    rows: list[Unknown]\n"
    file.write_text(made + file.read_text() + "SHARE = Share([1])\n")
    known = set(sys.modules)
    assert catalogue.load("twice", tmp_path).version("v0").dtypes == ("float32",)
    assert set(sys.modules) <= known


def test_what_a_definition_prints_goes_to_standard_error(tmp_path: Path) -> None:
    folder = written(tmp_path, launch="lambda configuration, problem, device: print('asked', file=None) or Launch(blocks=problem.rows)")
    file = folder / "v0.py"
    file.write_text(file.read_text() + "print('loaded', 7, sep='-')\nimport sys\nprint('on purpose', file=sys.stdout, end='')\n")
    (folder / "v0.cu").write_text(TEMPLATE)
    asked = ("--kernels", str(tmp_path), "--device", "emulator", "--size", "4x64", "--db", str(tmp_path / "x.sqlite"), "--json")
    status, out, err = run("sweep", "twice", *asked)
    assert status == 0, err
    assert "loaded-7\n" in err
    assert "asked\n" in err
    assert out.startswith("on purpose")
    assert all(json.loads(line) for line in out.removeprefix("on purpose").splitlines())


def test_a_command_ends_with_that_sentence(tmp_path: Path) -> None:
    folder = written(tmp_path, IN_PLACE="'yes'")
    said = refused("verify", "twice", "--kernels", str(tmp_path), "--device", "emulator")
    assert said == f"autotune: IN_PLACE of {folder / 'v0.py'} is 'yes'; give True or False"
