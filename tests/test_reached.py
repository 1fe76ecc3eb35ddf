"""What results depend on of a definition file: what the names that decide reach, and nothing that only a reader sees."""

import ast
import subprocess
from pathlib import Path

import pytest

from autotune import catalogue, nvcc, source
from autotune.backends.emulation import build
from autotune.errors import UsageError
from autotune.reached import reached

DEFINITION = '''"""v0: a version."""

from __future__ import annotations

import math, itertools
from dataclasses import dataclass
from autotune import packs
from autotune.definition import Bounds, Launch as Grid, all_of

TEMPLATE, IN_PLACE = "v0.cu", True
PARAMETERS = {"block": (64, 128)}
WIDTH = 4  # elements
ROWS = [1, 2, WIDTH]
LEAST: int = max(1, 0)
LIMIT = 9


def bounds(configuration):
    return Bounds(threads=configuration.integer("block"))


def applicable(configuration, problem, device):
    return all_of((problem.cols <= LIMIT, "too long"))


def launch(configuration: Configuration, problem: Problem, device: Device) -> Grid:
    """One block for a few rows."""
    def few() -> int:
        return _share(problem.rows)  # the rest is for another
    return Grid(blocks=few())


def _share(rows: int) -> int:
    return math.ceil(rows / _rows())


def _rows():
    return max(Share(ROWS[0], LEAST).rows, LEAST)


@dataclass
class Share:
    """Rows of a block."""

    rows: int
    least: int = 0
'''
NAMES = ("IN_PLACE", "bounds", "launch")


def of(text: str) -> str:
    return reached(text.encode(), NAMES)


def edited(right: str, other: str) -> str:
    assert DEFINITION.count(right) == 1, right
    return of(DEFINITION.replace(right, other))


@pytest.mark.parametrize(
    ("right", "other"),
    [
        ("Grid(blocks=few())", "Grid(blocks=few() + 1)"),
        ('threads=configuration.integer("block")', "threads=64"),
        ('"v0.cu", True', '"v0.cu", False'),
        ("math.ceil(rows / _rows())", "rows // _rows()"),
        ("max(Share(ROWS[0], LEAST).rows, LEAST)", "Share(ROWS[0], LEAST).rows"),
        ("WIDTH = 4", "WIDTH = 8"),
        ("ROWS = [1, 2, WIDTH]", "ROWS = [2, 1, WIDTH]"),
        ("LEAST: int = max(1, 0)", "LEAST: int = max(2, 0)"),
        ("    def few() -> int:", "    problem: Problem\n    def few() -> int:"),  # makes it a name of the function, as an assignment does
        ("problem.cols <= LIMIT", "ROWS.append(LIMIT)"),
        ("from __future__ import annotations\n", ""),
        ("    rows: int\n", "    rows: ClassVar[int]\n"),
        ("    rows: int\n    least: int = 0", "    least: int\n    rows: int = 0"),
        ("least: int = 0", "least = 0"),
        ("@dataclass\n", "@dataclass(frozen=True)\n"),
        ("import math, itertools", "import cmath as math, os"),
        ("Launch as Grid", "Other as Grid"),
        ("LIMIT = 9", "from somewhere import *"),
        ("LIMIT = 9", "ROWS = [1, 2, 4]"),
    ],
)
def test_what_the_names_reach_counts(right: str, other: str) -> None:
    assert edited(right, other) != of(DEFINITION)


@pytest.mark.parametrize(
    ("right", "other"),
    [
        ("  # elements", ""),
        ('"""v0: a version."""', '"""v0: another sentence."""'),
        ('    """One block for a few rows."""\n', ""),
        ("configuration: Configuration, problem: Problem", "configuration, problem"),
        ("LEAST: int = max(1, 0)", "LEAST = max(1, 0)"),
        ('    """Rows of a block."""\n\n', ""),
        ("    return Grid(blocks=few())", "    return Grid(\n        blocks=(few()),\n    )"),
        ('integer("block"))', "integer('block'),)"),
        ('TEMPLATE, IN_PLACE = "v0.cu", True', 'IN_PLACE = True; TEMPLATE = "v1.cu"'),
        ("(64, 128)", "(64, 128, 256)"),
        ("problem.cols <= LIMIT", "problem.cols < LIMIT"),
        ("problem.cols <= LIMIT", "problem.cols <= ROWS[0]"),
        ("LIMIT = 9", "LIMIT = 8"),
        ("LIMIT = 9", "LIMIT = 9\nUSED: int"),
        ("LIMIT = 9", "LIMIT = tuple(2**k for k in range(9))"),
        ("import math, itertools\n", "import itertools, bisect\nimport math\n"),
        ("from autotune import packs\n", ""),
        ("Launch as Grid, all_of", "all_of, Launch as Grid, Verdict"),
    ],
)
def test_what_only_a_reader_sees_or_they_do_not_reach_does_not(right: str, other: str) -> None:
    assert edited(right, other) == of(DEFINITION)


def test_functions_may_stand_in_any_order() -> None:
    head, *functions = DEFINITION.split("\n\n\n")
    assert of("\n\n\n".join([head, *reversed(functions)])) == of(DEFINITION)


@pytest.mark.parametrize("path", sorted(catalogue.shipped("kernels").glob("*/*.py")), ids=lambda path: path.stem)
def test_shipped_definitions_may_be_formatted_anew_without_their_comments(path: Path) -> None:
    code, names = path.read_bytes(), (*NAMES, "TOLERANCES", "reference", "default")
    formatted = ast.unparse(ast.parse(code)).encode()
    assert formatted != code
    assert reached(formatted, names) == reached(code, names) != ""


# What Python 3.11, 3.12 and 3.13 parse to different trees, or write differently; the result was the same with each of them.
AWKWARD = r"""
def launch(a, b):
    (a, b) = (b, a)
    return f"{a!r:>{b}} {b=}" 'it"s' + "don't // /* \u2028 caf\xe9" + "a   b" + '' + u"x"
"""
WRITTEN = r"""FunctionDef(name=launch, args=arguments(args=[arg(arg=a), arg(arg=b)]), body=[
    Assign(targets=[Tuple(elts=[a, b])], value=Tuple(elts=[b, a])),
    Return(value=BinOp(left=BinOp(left=BinOp(left=BinOp(left=JoinedStr(values=[FormattedValue(value=a, conversion=114, """ + (
    r"""format_spec=JoinedStr(values=['>', FormattedValue(value=b, conversion=-1)])), ' b=', FormattedValue(value=b, """
    r"""conversion=114), 'it"s']), op=Add(), right="don't // /* \u2028 caf\xe9"), op=Add(), right='a \x20 b'), op=Add(), """
    r"""right=''), op=Add(), right='x'))])"""
)


def test_the_form_does_not_depend_on_the_version_of_python() -> None:
    assert of(AWKWARD) == WRITTEN


def test_what_is_nested_too_deeply_is_one_sentence() -> None:
    assert of(f"def launch(a): return {' + '.join('a' * 100)}").count("BinOp") == 99
    with pytest.raises(UsageError, match=r"^what IN_PLACE, bounds, launch of a definition reach is nested too deeply"):
        of(f"def launch(a): return {' + '.join('a' * 900)}")


def test_the_hash_tells_apart_what_looks_like_a_comment_to_c() -> None:
    def hashed(text: str) -> str:
        return source.identity(f"int code;\n#if 0\n{of(text)}\n#endif\n")

    texts = [
        "def launch(x): return x // 2",
        "def launch(x): return x // 3",
        "def launch(x): return 'a // b'",
        "def launch(x): return 'a // c'",
        "def launch(x): return '/* a */'",
        "def launch(x): return '/* b */'",
        "def launch(x): return 'a b'",
        "def launch(x): return 'a  b'",
        "def launch(x): return 'a   b'",
    ]
    assert len({hashed(text) for text in texts}) == len(texts)


def _defined() -> str:
    """What the definitions of all shipped versions add, and an awkward one of ours."""
    shipped = [source.defined(version) for version in catalogue.load("softmax").versions.values()]
    everything = of(f"if 1: pass\n'it\\'s \\\"a\\\" \\n#endif \\\\'\n{AWKWARD}")  # of a file that is not plain
    assert everything.startswith("Module(")
    return "\n".join(["int before;", *shipped, "#if 0", of(AWKWARD), everything, "#endif", "int after;"])


def test_the_cpp_compiler_skips_what_definitions_add_and_warns_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.cu").write_text(_defined())
    command = [
        build.compiler(),
        "-x",
        "c++",
        "-std=c++17",
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        str(tmp_path / "x.cu"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.nvcc
def test_nvcc_skips_what_definitions_add_and_warns_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.cu").write_text(_defined())
    command = [nvcc.find(), "-std=c++17", "-Xcompiler", "-Wall", "--ptx", "-o", str(tmp_path / "x.ptx"), str(tmp_path / "x.cu")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
