"""A function of a user's definition that fails is one sentence that says which, in what file, and for what."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autotune import catalogue
from autotune.configuration import Configuration
from autotune.device import EMULATOR
from autotune.errors import UsageError
from autotune.operation import Operation
from autotune.problem import Problem
from tests.command import rows, run

OPERATION = """from autotune.operation import Tolerance
TOLERANCES = {"float32": Tolerance(relative=1e-6, absolute=1e-37)}
SAFE = ("v0", {"block": 32})
def reference(x):
    return 2 * x
def bytes_moved(problem):
    return 2 * problem.rows * problem.bytes_per_row
def default(problem, device):
    yield "v0", {"block": 32}
"""
DEFINITION = """from autotune.definition import Bounds, Launch, all_of
TEMPLATE, PARAMETERS, DTYPES, IN_PLACE = "v0.cu", {"block": (32, 64)}, ("float32",), True
def bounds(configuration):
    return Bounds(threads=configuration.integer("block"))
def applicable(configuration, problem, device):
    return all_of()
def launch(configuration, problem, device):
    return Launch(blocks=problem.rows)
"""
TEMPLATE = """#include "common.cuh"
template <class Element, int block>
__device__ void twice_v0(Element* output, const Element* input, long long, long long cols, long long output_stride,
                         long long input_stride, void*) {
    for (long long i = threadIdx.x; i < cols; i += blockDim.x)
        output[blockIdx.x * output_stride + i] = 2 * input[blockIdx.x * input_stride + i];
}
"""
PROBLEM = Problem("twice", 4, 64)
FIRST = Configuration.of("v0", block=32)


def written(kernels: Path, function: str = "", body: str = "") -> Path:
    """The folder of an operation in which the body of `function` is `body`."""
    folder = kernels / "twice"
    folder.mkdir()
    for name, text in (("operation.py", OPERATION), ("v0.py", DEFINITION), ("v0.cu", TEMPLATE)):
        if f"def {function}(" in text:
            text += f"{text[text.index(f'def {function}(') :].splitlines()[0]}\n    {body}\n"
        (folder / name).write_text(text)
    return folder


def operation(kernels: Path, function: str, body: str) -> Operation:
    return catalogue.load("twice", written(kernels, function, body).parent)


CALLS: dict[str, Callable[[Operation], object]] = {
    "applicable": lambda twice: twice.applicable(FIRST, PROBLEM, EMULATOR),
    "launch": lambda twice: twice.applicable(FIRST, PROBLEM, EMULATOR),
    "bounds": lambda twice: twice.applicable(FIRST, PROBLEM, EMULATOR),
    "bytes_moved": lambda twice: twice.bytes_moved(PROBLEM),
    "default": lambda twice: list(twice.defaults(PROBLEM, EMULATOR)),
}
FOR = {"bounds": "v0 block 32", "bytes_moved": "twice 4x64 float32", "default": "twice 4x64 float32, emulator"}


@pytest.mark.parametrize("function", CALLS)
def test_a_function_that_raises_is_named_with_its_file_and_what_it_was_asked(function: str, tmp_path: Path) -> None:
    twice = operation(
        tmp_path, function, "if True: raise KeyError('stash')\n    yield" if function == "default" else "raise KeyError('stash')"
    )
    file = tmp_path / "twice" / ("operation.py" if function in ("bytes_moved", "default") else "v0.py")
    with pytest.raises(UsageError) as caught:
        CALLS[function](twice)
    asked = FOR.get(function, "v0 block 32, twice 4x64 float32, emulator")
    assert str(caught.value) == f"{function} of {file} fails for {asked} (KeyError: 'stash'); correct it there"


@pytest.mark.parametrize(
    ("function", "kind"), [("applicable", "Verdict"), ("launch", "Launch"), ("bounds", "Bounds"), ("bytes_moved", "int")]
)
def test_a_function_that_returns_something_else_is_told_what_it_should_return(function: str, kind: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^{function} of .* returns None for .*; return a {kind}, as autotune/definition.py describes$"):
        CALLS[function](operation(tmp_path, function, "return None"))


@pytest.mark.parametrize(
    ("body", "came"),
    [
        ("return x.sum(axis=1)", "an array of 4 float64"),
        ("return x.sum(axis=1, keepdims=True)", "an array of 4x1 float64"),
        ("return x[:3]", "an array of 3x64 float64"),
        ("return x.T", "an array of 64x4 float64"),
        ("return x + 1j", "an array of 4x64 complex128"),
        ("return x.astype(str)", "an array of 4x64 <U32"),
        ("return x.sum()", "np.float64(256.0)"),
        ("x * 2", "None"),
        ("return [[1, 2], [3]]", "[[1, 2], [3]]"),
        ("return 'softmax'", "'softmax'"),
    ],
)
def test_a_reference_that_returns_no_such_matrix_is_told_what_came_and_what_is_accepted(body: str, came: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        operation(tmp_path, "reference", body).reference(np.ones((4, 64)))
    asked = f"reference of {tmp_path / 'twice' / 'operation.py'} returns {came} for an array of 4x64 float64"
    assert str(caught.value) == f"{asked}; return an array of real numbers of the same shape"


@pytest.mark.parametrize("body", ["x *= 2; return x", "return (2 * x).tolist()", "return (2 * x).astype(int)", "return x > 1"])
def test_a_reference_may_use_its_argument_up_and_return_any_real_numbers(body: str, tmp_path: Path) -> None:
    x = np.full((2, 3), 4.0)
    result = operation(tmp_path, "reference", body).reference(x)
    assert result.dtype == np.float64
    assert result.tolist() == [[1.0 if ">" in body else 8.0] * 3] * 2
    assert x.tolist() == [[4.0] * 3] * 2


@pytest.mark.parametrize("command", ["sweep", "verify"])
def test_no_kernel_is_blamed_for_a_reference_of_another_shape(command: str, tmp_path: Path) -> None:
    kernels = written(tmp_path, "reference", "return x.sum(axis=1)").parent
    stored = ("--db", str(tmp_path / "x.sqlite")) if command == "sweep" else ()
    status, out, err = run(command, "twice", "--size", "4x64", "--device", "emulator", "--kernels", str(kernels), *stored)
    assert (status, err.count("\n")) == (2, 1)
    assert f"reference of {kernels / 'twice' / 'operation.py'} returns an array of 4 float64 for an array of 4x64 float64" in err
    assert "launch_error" not in out + err
    if stored:
        assert rows("inspect", "blocked", *stored) == []


@pytest.mark.parametrize("function", ["applicable", "launch", "reference"])
def test_a_sweep_over_it_ends_with_that_sentence(function: str, tmp_path: Path) -> None:
    kernels = written(tmp_path, function, "return 1 / 0").parent
    asked = ("--size", "4x64", "--device", "emulator", "--kernels", str(kernels), "--db", str(tmp_path / "x.sqlite"))
    status, _, err = run("sweep", "twice", *asked)
    assert (status, err.count("\n")) == (2, 1)
    assert f"{function} of {kernels / 'twice'}" in err
    assert "ZeroDivisionError: division by zero" in err


@pytest.mark.usefixtures("signals_are_heard")
@pytest.mark.parametrize("function", ["applicable", "launch"])
def test_ctrl_c_says_in_which_function_the_sweep_hung_and_for_what(function: str, tmp_path: Path) -> None:
    kernels = written(tmp_path, function, "while True: pass").parent
    asked = ("--size", "4x64", "--device", "emulator", "--kernels", str(kernels), "--db", str(tmp_path / "x.sqlite"))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "PYTHONUNBUFFERED": "1"}
    running = subprocess.Popen([sys.executable, "-m", "autotune", "sweep", "twice", *asked], env=env, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdout.readline() == "tuning 1 problem on emulator\n"
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    where = f"{kernels / 'twice' / 'v0.py'}, line {len(DEFINITION.splitlines()) + 2}"
    assert f"interrupted in {function} of {where}, for v0 block 32, twice 4x64 float32, emulator; everything measured" in said
