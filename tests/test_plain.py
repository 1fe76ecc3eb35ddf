"""Two definitions that launch differently are never taken for the same, however the difference comes about."""

import ast
import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune import catalogue
from autotune.plain import is_plain
from autotune.reached import reached

NAMES = ("bounds", "launch")


def giving(bounds: str, launch: str = "0") -> str:
    return f"def bounds(): return {bounds}\ndef launch(n): return {launch}"


READS_A = giving("A", "A + n")
READS_A_AND_B = giving("A, B", "A, n")
READS_R = giving("tuple(R)", "len(R) + n")
CALLS_R = giving("tuple(R())", "len(R()) + n")
CALLS_HOW = giving("sorted(HOW)", "HOW['a'](n) if 'a' in HOW else 0")


def behaviour(text: str) -> object:
    """What its functions return one after the other; None for what cannot be loaded."""
    module: dict[str, Any] = {"__name__": "definition", "__builtins__": __builtins__}
    try:
        exec(compile(text, "definition", "exec", dont_inherit=True), module)
    except Exception:
        return None
    found: list[str] = []
    for name, *asked in (("launch", 1), ("bounds",), ("applicable", 2), ("launch", 3), ("bounds",)):
        try:
            found.append(re.sub(" at 0x[0-9a-f]+", "", repr(module[name](*asked))))
        except Exception as error:
            found.append(type(error).__name__)
    del found[2]  # what `applicable` says is not asked, only what it does to the others
    return found


def of(text: str) -> str:
    return reached(text.encode(), NAMES)


WAYS = {
    "a registry that a decorator fills": (
        "HOW = {}\ndef way(f): HOW[f.__name__] = f; return f\n@way\ndef a(n): return WHAT",
        "1",
        "2",
        CALLS_HOW,
    ),
    "a registry that a call fills": ("HOW = {}\ndef way(name, f): HOW[name] = f\nway('a', lambda n: WHAT)", "1", "2", CALLS_HOW),
    "__init_subclass__": (
        "R = []\nclass Base:\n    def __init_subclass__(cls): R.append(cls.share)\nclass Way(Base): share = WHAT",
        "1",
        "2",
        READS_R,
    ),
    "__set_name__": (
        "R = []\nclass Key:\n    def __set_name__(self, owner, name): R.append(name)\nclass Way: WHAT = Key()",
        "a",
        "b",
        READS_R,
    ),
    "__class_getitem__": ("R = []\nclass Way:\n    def __class_getitem__(cls, n): R.append(n)\nX = Way[WHAT]", "1", "2", READS_R),
    "a metaclass": (
        "R = []\nclass Meta(type):\n    def __getitem__(cls, n): R.append(n)\nclass Way(metaclass=Meta): pass\nX = Way[WHAT]",
        "1",
        "2",
        READS_R,
    ),
    "singledispatch": (
        "from functools import singledispatch\n@singledispatch\ndef how(n): return 0\n@how.register\ndef _(n: int): return WHAT",
        "1",
        "2",
        giving("0", "how(n)"),
    ),
    "global in a function that is called": ("A = 1\ndef change():\n    global A\n    A = WHAT\nchange()", "2", "3", READS_A),
    "global in another function": ("A = 1\ndef applicable(n):\n    global A\n    A = WHAT", "2", "3", READS_A),
    "a walrus": ("A = (B := WHAT)", "1", "2", giving("B", "B")),
    "a walrus in a list": ("X = [B := WHAT]\nA = 1", "1", "2", giving("B", "B")),
    "a walrus in a default": ("def f(x=(A := WHAT)): pass", "1", "2", READS_A),
    "a walrus in an annotation": ("def f(x: (A := WHAT)): pass", "1", "2", READS_A),
    "append for its effect": ("R = []\n_ = R.append(WHAT)", "1", "2", READS_R),
    "append in a default": ("R = []\ndef f(x=R.append(WHAT)): pass", "1", "2", READS_R),
    "append in an annotation": ("R = []\ndef f(x: R.append(WHAT)): pass", "1", "2", READS_R),
    "append in a key": ("R = []\nX = sorted((WHAT,), key=R.append)", "1", "2", READS_R),
    "append under a builtin's name": ("R = []\nX = [len(WHAT) for len in (R.append,)]", "1", "2", READS_R),
    "append under a class's own name": ("R = []\nclass Way:\n    len = R.append\n    x = len(WHAT)", "1", "2", READS_R),
    "another name of it": ("R = [0]\nB = R\nB[0] = WHAT", "1", "2", READS_R),
    "another name of it in another function": ("R = [0]\nB = R\ndef applicable(n): B[0] = WHAT", "1", "2", READS_R),
    "what a function gives out": ("R = [0]\ndef gives(): return R\ndef applicable(n): gives().append(WHAT)", "1", "2", READS_R),
    "a default that is a list": ("def R(x=[]): return x\ndef applicable(n): R().append(WHAT)", "1", "2", CALLS_R),
    "a list that was cached": (
        "from functools import cache\n@cache\ndef R(): return []\ndef applicable(n): R().append(WHAT)",
        "1",
        "2",
        CALLS_R,
    ),
    "an attribute of a function": ("def R(): pass\nR.a = 0\ndef applicable(n): R.a = WHAT", "1", "2", giving("R.a", "R.a")),
    "an attribute of a class": ("class R: a = 0\ndef applicable(n): R.a = WHAT", "1", "2", giving("R.a", "R.a")),
    "a list in a table": ("R = [0]\nT = {1: R}\ndef applicable(n): T[1].append(WHAT)", "1", "2", READS_R),
    "a capture of a match": ("match WHAT:\n    case A: pass", "1", "2", READS_A),
    "a capture of a sequence": ("match (0, WHAT):\n    case [_, *R]: pass", "1", "2", READS_R),
    "the name of an exception": ("A = 1\ntry: WHAT\nexcept ZeroDivisionError as A: pass", "0", "1 / 0", READS_A),
    "globals": ("globals().update(A=WHAT)", "1", "2", READS_A),
    "exec": ("exec('A = WHAT')", "1", "2", READS_A),
    "eval in launch": ("A = WHAT", "1", "2", giving("0", "eval('A')")),
    "builtins": ("import builtins\nbuiltins.A = WHAT", "1", "2", READS_A),
    "sys": (
        "import sys\nsys.modules['A_of_ours'] = WHAT",
        "1",
        "2",
        "import sys as s\ndef bounds(): return 0\ndef launch(n): return s.modules['A_of_ours']",
    ),
    "a docstring that is read": ("def f():\n    'WHAT'", "a", "b", giving("0", "f.__doc__")),
    "an annotation that is read": ("def f(x: WHAT): pass", "1", "2", giving("0", "f.__annotations__['x']")),
    "a format that reads": ("def f():\n    'WHAT'", "a", "b", giving("0", "'{0.__doc__}'.format(f)")),
    "a pattern that reads": (
        "def f():\n    'WHAT'",
        "a",
        "b",
        "def bounds(): return 0\ndef launch(n):\n    match f:\n        case object(__doc__=A): return A",
    ),
    "a for loop": ("for A in (1, WHAT): pass", "2", "3", READS_A),
    "with": ("from contextlib import nullcontext\nwith nullcontext(WHAT) as A: pass", "1", "2", READS_A),
    "del": ("A = 1\nmin = 2\nWHAT", "0", "del min", giving("min((1, 2))")),
    "an iterator that something else takes from": ("I = (x for x in (1, 2))\nX = WHAT\nR = tuple(I)", "()", "tuple(I)", READS_R),
    "exchanging and assigning twice": ("A, B = 1, 2\nWHAT", "A, B = B, A", "A = B; B = A", READS_A_AND_B),
    "the order of two assignments": ("A = 1\nWHAT", "A = 2\nB = A", "B = A\nA = 2", READS_A_AND_B),
    "the order of an assignment and a default": (
        "A = 1\nWHAT\ndef launch(n): return f()",
        "A = 2\ndef f(a=A): return a",
        "def f(a=A): return a\nA = 2",
        "def bounds(): return 0",
    ),
    "the order of a builtin and its new meaning": (
        "WHAT",
        "A = len('ab')\ndef len(x): return 7",
        "def len(x): return 7\nA = len('ab')",
        READS_A,
    ),
    "the order of another name of a builtin and its new meaning": (
        "WHAT",
        "A = max\ndef max(*x): return 7",
        "def max(*x): return 7\nA = max",
        giving("A(1, 2)"),
    ),
    "what is unpacked and a key that is None": ("X = {None: 1}\nA = WHAT", "{**X}", "{None: X}", giving("A")),
    "which argument has a default": ("def f(WHAT): return a\nA = 0", "*, a=None, b", "*, a, b", giving("0", "f(b=1)")),
    "infinity and a name": ("inf = 3\nA = WHAT", "1e999", "inf", READS_A),
    "imaginary infinity and a name": ("infj = 3\nA = WHAT", "1e999j", "infj", READS_A),
    "an ellipsis and its name": ("Ellipsis = 3\nA = WHAT", "...", "Ellipsis", giving("A")),
    "numbers of thousands of digits": ("A = 0x1" + "0" * 5000 + "WHAT", "1", "2", giving("A % 16")),
    "an annotation that makes a name local": (
        "A = 1",
        "",
        "A: int",
        "def bounds(): return 0\ndef launch(n):\n    if 1: pass; WHAT\n    return A",
    ),
    "what a dataclass takes for a field": (
        "from dataclasses import dataclass\nfrom typing import WHAT as Kind\n@dataclass\nclass Way:\n    a: Kind[int] = 1",
        "ClassVar",
        "Optional",
        giving("0", "Way(5).a"),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_launches_differently_is_told_apart(way: str) -> None:
    said, one, other, functions = WAYS[way]
    rest = "" if "def applicable" in said else "def applicable(n): return n\n"
    texts = [f"{rest}{said}\n{functions}\n".replace("WHAT", what) for what in (one, other)]
    assert behaviour(texts[0]) != behaviour(texts[1]), "the example shows nothing"
    assert of(texts[0]) != of(texts[1])


STATEMENTS = (
    "A = 1", "A = 2", "B = A", "B = 3", "A, B = B, A", "A, B = 1, 2", "A: int = 4", "A += 1", "A = B = 5", "A = (B := 6)", "A = len",
    "B: int", "R = [1]", "R = [2]", "R.append(A)", "S = R", "S[0] = A", "_ = R.append(7)", "R += [A]", "S = [*R, A]", "T = {1: R}",
    "T = {1: A, 2: B}", "T[1] = B", "R = [x for x in T]", "R = sorted(T)", "S = {**T}", "S = {None: T}", "for A in R: B = A",
    "A = R[0]", "A = T[1]", "del B", "if A > 1: B = 9", "from math import pi as A", "from math import *", "import math as A",
    "def len(x): return 8", "A = len(R)", "def f(n=A): return n", "def f(n=[]): n.append(1); return len(n)", "def f(): return R",
    "def f(): global A; A = 10", "f()", "A = f()", "def f(*, a=None, b=1): return b", "@f\ndef g(n): return n", "g = lambda n, a=A: a",
    "g = f", "class C: a = A", "C.a = 11", "A = C.a", "class D(C): a = 12",
    "from functools import cache\n@cache\ndef g(n): return [n]", "def g(n): return T[1]", "def g(n): return C.a",
    "match R:\n    case [A, *B]: pass", "try: B\nexcept NameError: B = 13", "exec('A = 14')", "globals()['B'] = 15", "assert True",
    "pass",
)  # fmt: skip
FUNCTIONS = tuple(
    f"def {name}: return {what}"
    for name in ("launch(n)", "bounds()", "applicable(n)")
    for what in (
        "A",
        "A, B",
        "tuple(R)",
        "sorted(T)",
        "T[1]",
        "f()",
        "g(2)",
        "len(R)",
        "C.a",
        "S[0]",
        "R.append(16)",
        "f().append(17)",
        "g(2).append(18)",
    )
)


@st.composite
def definitions(draw: st.DrawFn) -> list[str]:
    statements = draw(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=7))
    return [
        *statements,
        *(draw(st.sampled_from([f for f in FUNCTIONS if f.startswith(f"def {name}")])) for name in ("launch", "bounds", "applic")),
    ]


@given(definitions(), st.data())
@settings(max_examples=150, deadline=None)
def test_a_random_edit_that_changes_a_launch_is_never_overlooked(lines: list[str], data: st.DataObject) -> None:
    edited = list(lines)
    place, other = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    match data.draw(st.sampled_from(("replace", "insert", "delete", "exchange"))):
        case "replace":
            edited[place] = data.draw(st.sampled_from(STATEMENTS + FUNCTIONS))
        case "insert":
            edited.insert(place, data.draw(st.sampled_from(STATEMENTS)))
        case "delete":
            del edited[place]
        case "exchange":
            edited[place], edited[other] = edited[other], edited[place]
    before, after = "\n".join(lines), "\n".join(edited)
    if of(before) == of(after):
        does = behaviour(before), behaviour(after)
        assume(None not in does)
        assert does[0] == does[1]


def test_what_an_interactive_session_adds_to_builtins_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def launch(n): return len(_)\n_ = 'ab'\nOTHER = 1\n"
    before = of(text)
    monkeypatch.setattr("builtins._", 7, raising=False)
    reached.cache_clear()
    assert before == of(text) == of(text.replace("OTHER = 1", "OTHER = 2"))


def test_the_shipped_definitions_are_plain() -> None:
    for path in catalogue.shipped("kernels").glob("*/*.py"):
        assert is_plain(ast.parse(path.read_bytes())), path
