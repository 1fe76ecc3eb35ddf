"""What results depend on of a definition file: some of its names with all that they reach, in one form however the file is written.

What only a reader sees is no part of it: comments, docstrings, annotations, spacing, in which order functions stand. `ast.dump` and
`ast.unparse` would say the same code differently from one version of Python to the next; this does not.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache

from autotune.errors import UsageError

_UNASKED = frozenset({"annotation", "returns", "type_comment", "type_params", "ctx", "kind"})  # fields that compute nothing

Part = tuple[frozenset[str], ast.stmt]  # the names of a module that a statement says something of


class _Field(ast.stmt):
    """An annotated name of a class, where an annotation may do something: it makes a field of a dataclass."""

    _fields = ("target", "type", "value")

    def __init__(self, declared: ast.AnnAssign) -> None:
        super().__init__()
        self.target, self.type, self.value = declared.target, declared.annotation, declared.value


@lru_cache(maxsize=128)
def reached(code: bytes, names: tuple[str, ...]) -> str:
    r"""The statements of the module `code` that define `names`, with those that define what these name, and so on; one a line.

    An import is named and not followed. What may change a name, such as `TABLE[0] = 1` or an `if`, belongs to it. Raises UsageError where
    something is nested hundreds of levels deep.

    >>> print(reached(b"LIMIT = 8  # at most\nOTHER = 1\ndef launch(n): return min(n, LIMIT)", ("launch",)))
    FunctionDef(name=launch, args=arguments(args=[arg(arg=n)]), body=[
        Return(value=Call(func=min, args=[n, LIMIT]))])
    Assign(targets=[LIMIT], value=8)
    """
    try:
        return "\n".join(_written(statement) for statement in _reached(code, names))
    except RecursionError:
        raise UsageError(
            f"what {', '.join(names)} of a definition reach is nested too deeply to be told from other code; make a sum of hundreds of "
            "terms a sum over a tuple"
        ) from None


def _reached(code: bytes, names: tuple[str, ...]) -> list[ast.stmt]:
    parts = [part for statement in ast.parse(code).body for part in _parts(statement)]
    places: dict[str, list[int]] = defaultdict(list)
    for place, (about, _) in enumerate(parts):
        for name in about:
            places[name].append(place)
    found: set[int] = set()
    ahead = [*names, "*"]
    while ahead:
        for place in places.pop(ahead.pop(), ()):
            if place not in found:
                found.add(place)
                ahead += _named(parts[place][1])
    return [parts[place][1] for place in sorted(found, key=lambda place: _order(place, *parts[place]))]


def _parts(statement: ast.stmt) -> Iterator[Part]:
    """What a statement says of which names; one that says several things is taken apart."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield frozenset({statement.name}), statement
        case ast.Import():
            for alias in statement.names:
                yield frozenset({_bound(alias)}), ast.Import([alias])
        case ast.ImportFrom():
            for alias in statement.names:
                yield frozenset({_bound(alias)}), ast.ImportFrom(statement.module, [alias], statement.level)
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if _paired(targets, values):
            for target, value in zip(targets, values, strict=True):
                yield from _parts(ast.Assign([target], value))
        case ast.Assign():
            yield frozenset(name for target in statement.targets for name in _named(target)), statement
        case ast.AnnAssign():
            yield frozenset(_named(statement.target)), statement
        case _:
            yield frozenset(_named(statement)), statement


def _paired(targets: list[ast.expr], values: list[ast.expr]) -> bool:
    return len(targets) == len(values) and not any(isinstance(each, ast.Starred) for each in (*targets, *values))


def _named(node: ast.AST) -> Iterator[str]:
    """The names in `node`, read or bound, but for those that stand in annotations alone."""
    match node:
        case ast.Name():
            yield node.id
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.alias():
            yield _bound(node)
    for field, value in ast.iter_fields(node):
        if field not in _UNASKED:
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    yield from _named(each)


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _order(place: int, about: Iterable[str], statement: ast.stmt) -> tuple[bool, str, int]:
    """Functions and imports by name, for they may stand anywhere; then the others as they come, for one may change what another said."""
    movable = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)
    return not movable, min(about) if movable else "", place


def _written(node: object, depth: int = 1) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{_written(node.value, depth)}.{node.attr}"
        case ast.Constant():
            return ascii(node.value).replace("  ", r" \x20")  # two blanks in a literal are not one
        case ast.JoinedStr():  # Python 3.12 leaves empty pieces between the others
            return f"JoinedStr(values={_written([each for each in node.values if getattr(each, 'value', None) != ''], depth)})"
        case ast.ClassDef(body=body) if any(isinstance(each, ast.AnnAssign) for each in body):
            members = [_Field(each) if isinstance(each, ast.AnnAssign) else each for each in body]
            return _written(ast.ClassDef(node.name, node.bases, node.keywords, members, node.decorator_list), depth)
        case ast.AnnAssign(value=ast.expr() as value):
            return _written(ast.Assign([node.target], value), depth)
        case ast.AST():
            fields = [(name, value) for name, value in ast.iter_fields(node) if name not in _UNASKED and value not in (None, [])]
            return f"{type(node).__name__}({', '.join(f'{name}={_written(value, depth)}' for name, value in fields)})"
        case [ast.stmt(), *_]:
            line = "\n" + "    " * depth
            return f"[{','.join(line + _written(each, depth + 1) for each in node if not _idle(each))}]"
        case list():
            return f"[{', '.join(_written(each, depth) for each in node)}]"
        case _:
            return str(node)


def _idle(statement: object) -> bool:
    """Whether it computes nothing: a docstring, or an annotation alone."""
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.AnnAssign(value=None):
            return True
    return False
