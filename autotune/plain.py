"""Whether a definition file is plain, so that what some of its names depend on can be told from its text.

Loading a plain file binds names and does nothing else. Each name is bound once, by an import of something in KNOWN_MODULES, a function, a
class without special methods, or an assignment whose value calls nothing but PURE functions; so no statement changes what another has said,
and their order is of no weight. Nor does anything in the file reach names in other ways: there is no `global` in it, no assignment to an
attribute, no `__name__` of that kind, and nothing of BY_OTHER_WAYS.

The rule is made to be short: it calls many a file not plain whose names could be told apart. Of such a file everything counts.
"""

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache

KNOWN_MODULES = frozenset(
    {
        *("__future__", "autotune", "bisect", "collections", "collections.abc", "dataclasses", "functools", "itertools", "math", "numpy"),
        "typing",
    }
)
PURE_BUILTINS = (
    *("abs", "all", "any", "bool", "dict", "dict.fromkeys", "float", "frozenset", "int", "len", "list", "max", "min", "pow", "range"),
    *("round", "set", "sorted", "str", "sum", "tuple"),
)
PURE = frozenset({f"builtins.{name}" for name in PURE_BUILTINS} | {"autotune.operation.Tolerance"})
PURE_DECORATORS = frozenset({"dataclasses.dataclass", "functools.cache", "functools.lru_cache"})
PURE_BASES = frozenset({"typing.NamedTuple"})
BY_OTHER_WAYS = frozenset(
    {
        *("compile", "delattr", "dir", "eval", "exec", "get_annotations", "get_type_hints", "getattr", "globals", "locals", "setattr"),
        *("singledispatch", "vars"),
    }
)
HIDDEN = ("__", "gi_", "cr_", "ag_")  # what Python adds to what is written, and what generators and coroutines know of the code that runs

_PARTS_OF_VALUES = (
    *(
        ast.Attribute,
        ast.BinOp,
        ast.BoolOp,
        ast.Compare,
        ast.Constant,
        ast.Dict,
        ast.DictComp,
        ast.FormattedValue,
        ast.IfExp,
        ast.JoinedStr,
    ),
    *(ast.List, ast.ListComp, ast.Name, ast.Set, ast.SetComp, ast.Slice, ast.Starred, ast.Subscript, ast.Tuple, ast.UnaryOp),
    *(ast.boolop, ast.cmpop, ast.comprehension, ast.expr_context, ast.operator, ast.unaryop),
)
_UNCHANGEABLE = (ast.BinOp, ast.BoolOp, ast.Compare, ast.Constant, ast.IfExp, ast.Name, ast.Tuple, ast.UnaryOp)

Names = dict[str, str]  # the whole name of what is imported, by the name that it has here; "" for what is defined here


def is_plain(module: ast.Module) -> bool:
    """Whether loading `module` does nothing but bind names, each once, to what its text says."""
    imports = _imports(module)
    bound = [name for statement in module.body for name in _bound(statement)]
    own = dict.fromkeys(bound, "") | imports
    return (
        len(bound) == len(set(bound))
        and _reads_nothing_before(module)
        and all(_binds(statement, own) for statement in module.body)
        and not any(_reaches_otherwise(node) for node in _beside_docstrings(module))
    )


def _reads_nothing_before(module: ast.Module) -> bool:
    """Whether no name is read before `module` binds it: it would be a builtin's, and another one afterwards."""
    ahead = {name for statement in module.body for name in _bound(statement)}
    for statement in module.body:
        if not ahead.isdisjoint(_read_at_loading(statement)):
            return False
        ahead.difference_update(_bound(statement))
    return True


def _read_at_loading(node: ast.AST) -> Iterator[str]:
    parts: Iterable[ast.AST] = ()
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            yield name
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            parts = (*node.decorator_list, *_defaults(node.args))
        case ast.Lambda():
            parts = _defaults(node.args)
        case _:
            parts = ast.iter_child_nodes(node)
    for part in parts:
        yield from _read_at_loading(part)


def changeable(module: ast.Module) -> Callable[[ast.stmt], bool]:
    """Whether what a statement of a plain `module` binds can become something else later: not a number, nor a table that is only read."""

    @cache
    def passed_on() -> set[str]:
        """The names that stand anywhere but before the brackets of what is read."""
        nodes = [*_beside_docstrings(module)]
        inside = {id(node.value) for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)}
        return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in inside}

    def is_changeable(statement: ast.stmt) -> bool:
        match statement:
            case ast.Import() | ast.ImportFrom():
                return False
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return bool(statement.decorator_list) or not all(map(_is_unchangeable, _defaults(statement.args)))
            case ast.Assign(targets=[ast.Name(id=name)], value=(ast.Dict() | ast.List()) as table) if name not in passed_on():
                return not all(_is_unchangeable(each) for each in ast.iter_child_nodes(table) if isinstance(each, ast.expr))
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                return not _is_unchangeable(value)
        return True

    return is_changeable


def _is_unchangeable(value: ast.AST) -> bool:
    parts = (each for each in ast.iter_child_nodes(value) if isinstance(each, ast.expr))
    return isinstance(value, _UNCHANGEABLE) and all(map(_is_unchangeable, parts))


def _binds(statement: ast.stmt, own: Names) -> bool:
    """Whether `statement` of a module only binds a name, or nothing."""
    match statement:
        case ast.Import():
            return all("." not in alias.name or alias.asname for alias in statement.names)  # others bind what two imports may bind
        case ast.ImportFrom():
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return _is_decorated_purely(statement, own) and all(_is_pure(each, own) for each in _defaults(statement.args))
        case ast.ClassDef(keywords=[]):
            bases = all(_whole_name(base, own) in PURE_BASES for base in statement.bases)
            return bases and _is_decorated_purely(statement, own) and all(map(_binds_in_class, statement.body))
        case ast.Assign():
            return all(map(_is_target, statement.targets)) and _is_pure(statement.value, own)
        case ast.AnnAssign(target=ast.Name(), value=value):
            return value is None or _is_pure(value, own)
        case ast.Pass():
            return True
    return is_idle(statement)


def _binds_in_class(statement: ast.stmt) -> bool:
    """Whether `statement` of a class only binds a name, and calls nothing: here any name may have another meaning than in the module."""
    calls = isinstance(statement, ast.Assign | ast.AnnAssign) and any(isinstance(each, ast.Call) for each in ast.walk(statement))
    match statement:
        case ast.ClassDef() | ast.Import() | ast.ImportFrom():
            return False
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return not statement.decorator_list and all(map(_is_unchangeable, _defaults(statement.args)))
    return not calls and _binds(statement, {})


def _is_target(target: ast.expr) -> bool:
    match target:
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            return all(map(_is_target, targets))
        case ast.Starred(value=value):
            return _is_target(value)
    return isinstance(target, ast.Name)


def _is_decorated_purely(statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, own: Names) -> bool:
    for decorator in statement.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        given = [*decorator.args, *(keyword.value for keyword in decorator.keywords)] if isinstance(decorator, ast.Call) else []
        if _whole_name(called, own) not in PURE_DECORATORS or not all(isinstance(each, ast.Constant) for each in given):
            return False
    return True


def _is_pure(value: ast.AST, own: Names) -> bool:
    """Whether to compute `value` changes nothing, and gives the same again."""
    match value:
        case ast.Lambda():
            return all(_is_pure(each, own) for each in _defaults(value.args))
        case ast.Call():
            known = _whole_name(value.func, own) in PURE and all(keyword.arg not in (None, "key") for keyword in value.keywords)
            given = [*value.args, *(keyword.value for keyword in value.keywords)]
            # A generator is used up by what takes it; one that had a name could be used up by either of two.
            return known and all(
                all(_is_pure(part, own) for part in ast.iter_child_nodes(each))
                if isinstance(each, ast.GeneratorExp)
                else _is_pure(each, own)
                for each in given
            )
        case ast.comprehension(target=target):
            named = {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
            if not _is_target(target) or named & {*own, *PURE_BUILTINS}:
                return False
    return isinstance(value, _PARTS_OF_VALUES) and all(_is_pure(part, own) for part in ast.iter_child_nodes(value))


def _whole_name(function: ast.expr, own: Names) -> str:
    """The name of `function` from its module on, such as "functools.cache"; "" for what is none."""
    match function:
        case ast.Name(id=name):
            return own.get(name, f"builtins.{name}")
        case ast.Attribute(value=owner, attr=name):
            return f"{_whole_name(owner, own)}.{name}"
    return ""


def _imports(module: ast.Module) -> Names:
    found: Names = {}
    for statement in module.body:
        match statement:
            case ast.Import(names=names):
                found |= {alias.asname or alias.name: alias.name for alias in names}
            case ast.ImportFrom(module=str() as origin, names=names):
                found |= {alias.asname or alias.name: f"{origin}.{alias.name}" for alias in names}
    return found


def _bound(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (alias.asname or alias.name for alias in names)
        case ast.Assign(targets=targets):
            yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            yield name


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]


def _beside_docstrings(module: ast.Module) -> Iterator[ast.AST]:
    """All nodes of `module` but for the constants that are statements. Half the time of `ast.walk`, for a first launch waits for it."""
    ahead: list[ast.AST] = [module]
    while ahead:
        node = ahead.pop()
        if is_idle(node):
            continue
        yield node
        for field in node._fields:
            value = getattr(node, field, None)
            if value.__class__ is list:
                ahead += [each for each in value if isinstance(each, ast.AST)]
            elif field != "ctx" and isinstance(value, ast.AST):
                ahead.append(value)


def is_idle(statement: object) -> bool:
    """Whether it computes nothing, as a docstring."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _reaches_otherwise(node: ast.AST) -> bool:
    """Whether names may be read or changed here though they do not stand here, or by what does not count."""
    match node:
        case ast.Name(id=name):  # first, for most are names
            return _is_hidden(name)
        case ast.Attribute(attr=name, ctx=context):
            return not isinstance(context, ast.Load) or _is_hidden(name)
        case ast.Global():
            return True
        case ast.Import(names=names):
            return not all(_is_known(alias.name) for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            return bool(level) or not _is_known(str(module)) or any(alias.name == "*" or _is_hidden(alias.name) for alias in names)
        case ast.MatchClass(kwd_attrs=names):
            return any(map(_is_hidden, names))
        case ast.Constant(value=str() as text):
            return "__" in text  # a format may name attributes
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            returned = None if isinstance(node, ast.ClassDef) else node.returns
            return _is_hidden(node.name) or bool(getattr(node, "type_params", [])) or _acts(returned)
        case ast.arg(annotation=said) | ast.AnnAssign(annotation=said):
            return _acts(said)
    return False


def _is_known(module: str) -> bool:
    return module in KNOWN_MODULES or module.startswith("autotune.")


def _is_hidden(name: str) -> bool:
    return name in BY_OTHER_WAYS or name.startswith(HIDDEN)


def _acts(annotation: ast.expr | None) -> bool:
    """Whether an annotation, of which nothing counts, may do something when it is computed."""
    return annotation is not None and any(isinstance(each, ast.Call | ast.NamedExpr | ast.Await) for each in ast.walk(annotation))
