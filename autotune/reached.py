"""What results depend on of a definition file: some of its names with all that they reach, in one form however the file is written.

What only a reader sees is no part of it: comments, docstrings, annotations, spacing, in which order functions stand. Of a file that is not
plain (see `autotune.plain`) all is part of it but comments and spacing, for it cannot be told what one statement does to another.

`ast.dump` and `ast.unparse` would say the same code differently from one version of Python to the next; this does not.
"""

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache

from autotune.errors import UsageError
from autotune.plain import changeable, is_idle, is_plain

_SAYING_NOTHING = frozenset({"ctx", "kind", "type_comment"})  # fields that follow from others, or from how code is written
_UNASKED = _SAYING_NOTHING | {"annotation", "returns"}  # fields that compute nothing in a plain file
_MOST_BITS = 4096  # of a number written with decimal digits, of which Python refuses to write more than some thousand

_ALWAYS = "from __future__"  # stands for the names of what changes all code

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

    An import is named and not followed. What can become something else later, as a list can, brings all that reaches it. Of a file that is
    not plain it is all statements. Raises UsageError where something is nested hundreds of levels deep.

    >>> print(reached(b"LIMIT = 8  # at most\nOTHER = 1\ndef launch(n): return min(n, LIMIT)", ("launch",)))
    FunctionDef(name=launch, args=arguments(args=[arg(arg=n)]), body=[
        Return(value=Call(func=min, args=[n, LIMIT]))])
    Assign(targets=[LIMIT], value=8)
    """
    try:
        return "\n".join(_reached(code, names))
    except RecursionError:
        raise UsageError(
            f"what {', '.join(names)} of a definition reach is nested too deeply to be told from other code; make a sum of hundreds of "
            "terms a sum over a tuple"
        ) from None


def _reached(code: bytes, names: tuple[str, ...]) -> Iterator[str]:
    module = ast.parse(code)
    if not is_plain(module):
        yield _written(module, whole=True)
        return
    parts = [part for statement in module.body for part in _parts(statement)]
    places: dict[str, list[int]] = defaultdict(list)
    for place, (about, _) in enumerate(parts):
        for name in about:
            places[name].append(place)
    is_changeable = changeable(module)

    @cache
    def needed(place: int) -> set[int]:
        return {needed for name in _named(parts[place][1]) for needed in places.get(name, ())}

    def users(place: int) -> set[int]:
        return {user for user in range(len(parts)) if place in needed(user)}

    found, grown = set[int](), {place for name in (*names, _ALWAYS) for place in places.get(name, ())}
    while grown != found:
        found = _closed(grown, needed)
        grown = found | _closed({place for place in found if is_changeable(parts[place][1])}, users)
    yield from (_written(parts[place][1]) for place in sorted(found, key=lambda place: _order(place, *parts[place])))


def _closed(places: set[int], following: Callable[[int], set[int]]) -> set[int]:
    """`places`, what follows them, and so on."""
    found: set[int] = set()
    ahead = set(places)
    while ahead:
        place = ahead.pop()
        found.add(place)
        ahead |= following(place) - found
    return found


def _parts(statement: ast.stmt) -> Iterator[Part]:
    """What a statement of a plain module says of which names; one that says several things is taken apart."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield frozenset({statement.name}), statement
        case ast.Import():
            for alias in statement.names:
                yield frozenset({_bound(alias)}), ast.Import([alias])
        case ast.ImportFrom():
            for alias in statement.names:
                about = _ALWAYS if statement.module == "__future__" else _bound(alias)
                yield frozenset({about}), ast.ImportFrom(statement.module, [alias], statement.level)
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if _paired(targets, values):
            for target, value in zip(targets, values, strict=True):
                yield from _parts(ast.Assign([target], value))
        case ast.Assign():
            yield frozenset(name for target in statement.targets for name in _named(target)), statement
        case ast.AnnAssign(value=ast.expr()):
            yield frozenset(_named(statement.target)), statement


def _paired(targets: list[ast.expr], values: list[ast.expr]) -> bool:
    return len(targets) == len(values) and not any(isinstance(each, ast.Starred) for each in (*targets, *values))


def _named(node: ast.AST) -> Iterator[str]:
    """The names in `node`, read or bound, but for those that stand in annotations alone."""
    match node:
        case ast.Name():
            yield node.id
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.name
        case ast.ClassDef():
            yield node.name
            node = _with_fields(node)
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


def _written(node: object, depth: int = 1, whole: bool = False) -> str:
    """`node` as a text that no other code has; `whole` is with what computes nothing, too."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{_written(node.value, depth, whole)}.{node.attr}"
        case ast.Constant():
            return _literal(node.value)
        case ast.JoinedStr():  # Python 3.12 leaves empty pieces between the others
            values = [each for each in node.values if getattr(each, "value", None) != ""]
            return f"JoinedStr(values={_written(values, depth, whole)})"
        case ast.ClassDef(body=body) if not whole and any(isinstance(each, ast.AnnAssign) for each in body):
            return _written(_with_fields(node), depth, whole)
        case ast.AnnAssign(value=ast.expr() as value) if not whole:
            return _written(ast.Assign([node.target], value), depth)
        case ast.AST():
            unasked = _SAYING_NOTHING if whole else _UNASKED
            fields = [(name, value) for name, value in ast.iter_fields(node) if name not in unasked and value not in (None, [])]
            return f"{type(node).__name__}({', '.join(f'{name}={_written(value, depth, whole)}' for name, value in fields)})"
        case [ast.stmt(), *_]:
            line = "\n" + "    " * depth
            return f"[{','.join(line + _written(each, depth + 1, whole) for each in node if whole or not is_idle(each))}]"
        case list():  # with None in it as in {**others}, or in (*, a, b=1)
            return f"[{', '.join('**' if each is None else _written(each, depth, whole) for each in node)}]"
        case str() if not node.replace(".", "").isidentifier():
            return ascii(node)
        case _:
            return str(node)


def _literal(value: object) -> str:
    if isinstance(value, float | complex):
        return ascii(value).replace("inf", "1e999")  # which is how it was written; `inf` is a name
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return hex(value)
    return "..." if value is ... else ascii(value).replace("  ", r" \x20")  # two blanks in a literal are not one


def _with_fields(node: ast.ClassDef) -> ast.ClassDef:
    members = [_Field(each) if isinstance(each, ast.AnnAssign) else each for each in node.body]
    return ast.ClassDef(node.name, node.bases, node.keywords, members, node.decorator_list)
