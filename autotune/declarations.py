"""What a definition file declares besides functions, checked where it is loaded: each mistake is a sentence that says what is accepted."""

from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from autotune.configuration import VERSION, Configuration, Value
from autotune.definition import MOST, Version
from autotune.element import ELEMENTS
from autotune.errors import UsageError, shown
from autotune.operation import RELATIVE, Tolerance

MOST_CONFIGURATIONS = 1 << 20  # of all versions together: half a minute and 2 GB for a search where each is applicable

# What a search, a selector and exports call things that lie beside a configuration's parameters.
RESERVED = (RELATIVE, VERSION)


def file_name(path: Path, name: str, value: Any) -> str:
    """`value` if it is a name of a file, which `name` of the definition at `path` declares. Raises UsageError otherwise, as all do here."""
    _require(isinstance(value, str) and value.strip(), path, name, value, 'give the name of a file, such as "v0.cu"')
    return str(value)


def dtypes(path: Path, value: Any, tolerances: Mapping[str, Tolerance]) -> tuple[str, ...]:
    """DTYPES: element types, each with a tolerance of the operation's."""
    good = isinstance(value, tuple | list) and value and all(isinstance(each, str) and each in ELEMENTS for each in value)
    _require(good, path, "DTYPES", value, f'give a tuple of names from {", ".join(ELEMENTS)}, such as ("float32",)')
    without = [dtype for dtype in value if dtype not in tolerances]
    _require(not without, path, "DTYPES", value, f"TOLERANCES of its operation has none for {', '.join(without)}; add it there")
    return tuple(value)


def flag(path: Path, name: str, value: Any) -> bool:
    _require(isinstance(value, bool), path, name, value, "give True or False")
    return bool(value)


def compute_capability(path: Path, value: Any) -> tuple[int, int]:
    good = isinstance(value, tuple | list) and len(value) == 2 and all(_is_count(each) for each in value)
    _require(good, path, "LEAST_COMPUTE_CAPABILITY", value, "give two whole numbers, such as (8, 0)")
    return value[0], value[1]


def parameters(path: Path, value: Any) -> dict[str, tuple[Value, ...]]:
    """PARAMETERS: the values of each, which the source and the name of an instance can spell."""
    good = isinstance(value, dict) and len(value) > 0
    good = good and all(_is_identifier(name) and isinstance(them, tuple | list) and them for name, them in value.items())
    good = good and all(_is_count(each) or _is_identifier(each) for them in value.values() for each in them)
    accepted = "give each name a tuple of whole numbers from 0 to 2^63 - 1 or identifiers"
    _require(good, path, "PARAMETERS", value, accepted)
    taken = [name for name in value if name in RESERVED]
    accepted = f"give {' and '.join(taken)} another name, for {' and '.join(RESERVED)} mean something else beside parameters"
    _require(not taken, path, "PARAMETERS", value, accepted)
    twice = [name for name, them in value.items() if len(set(them)) < len(them)]
    _require(not twice, path, "PARAMETERS", value, f"give each value of {', '.join(twice)} once")
    return {name: tuple(them) for name, them in value.items()}


def tolerances(path: Path, value: Any) -> dict[str, Tolerance]:
    """TOLERANCES: what each element type is checked with."""
    good = isinstance(value, dict) and value and all(isinstance(name, str) and name in ELEMENTS for name in value)
    good = good and all(isinstance(each, Tolerance) and _is_part(each.relative) and _is_part(each.absolute) for each in value.values())
    accepted = f"give some of {', '.join(ELEMENTS)} a Tolerance(relative, absolute) each, of finite numbers from 0 on"
    _require(good, path, "TOLERANCES", value, accepted)
    return dict(value)


def countable(folder: Path, versions: Mapping[str, Version]) -> None:
    """Raises UsageError where `versions` have more configurations than can be asked one by one whether they are applicable."""
    total = sum(version.count for version in versions.values())
    if total > MOST_CONFIGURATIONS:
        largest = max(versions.values(), key=lambda version: version.count)
        count = f"{total:,}" if total < 10**18 else "more than 10^18"
        raise UsageError(
            f"PARAMETERS of the versions in {folder} make {count} configurations, most of them of {largest.name}, and at most "
            f"{MOST_CONFIGURATIONS:,} can be asked one by one whether they are applicable; list fewer values"
        )


def safe(path: Path, value: Any, versions: Mapping[str, Version]) -> Configuration:
    """SAFE: one of the declared configurations."""
    good = isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict)
    _require(good, path, "SAFE", value, 'give a version and its parameters, such as ("v0", {"block": 256})')
    name, chosen = value
    if name not in versions:
        raise UsageError(f"SAFE of {path} names {shown(name)}, which {path.parent} does not have; name one of its versions")
    declared = versions[name].parameters
    offered = "; ".join(f"{parameter}: {', '.join(map(str, values))}" for parameter, values in declared.items())
    good = chosen.keys() == declared.keys() and all(any(_same(each, chosen[key]) for each in values) for key, values in declared.items())
    _require(good, path, "SAFE", value, f"give each parameter of {name} one of its values ({offered})")
    return Configuration(name, tuple((parameter, chosen[parameter]) for parameter in declared))


def fitted(path: Path, value: Any) -> dict[str, tuple[str, ...]]:
    """FITTED: parameters of versions, which need not be here."""
    good = isinstance(value, dict) and all(isinstance(names, tuple | list) and _are_texts((name, *names)) for name, names in value.items())
    _require(good, path, "FITTED", value, 'give versions a tuple of names of their parameters, such as {"v1": ("items",)}')
    return {name: tuple(names) for name, names in value.items()}


def shared_among(path: Path, value: Any) -> dict[str, str]:
    """SHARED_AMONG: one parameter of versions, which need not be here."""
    good = isinstance(value, dict) and _are_texts(value.keys()) and _are_texts(value.values())
    _require(good, path, "SHARED_AMONG", value, 'give versions the name of one of their parameters, such as {"v1": "block"}')
    return dict(value)


def function(path: Path, name: str, value: Any) -> Callable[..., Any]:
    _require(callable(value), path, name, value, "give a function")
    called: Callable[..., Any] = value
    return called


def _require(good: object, path: Path, name: str, value: object, accepted: str) -> None:
    if not good:
        raise UsageError(f"{name} of {path} is {shown(value)}; {accepted}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _is_identifier(value: object) -> bool:
    return isinstance(value, str) and value.isidentifier() and value.isascii()


def _is_part(value: object) -> bool:
    """Whether `value` may be part of a tolerance."""
    try:
        return not isinstance(value, bool) and isinstance(value, Real) and 0 <= float(value) < MOST
    except OverflowError:  # a whole number that no float is as large as
        return False


def _same(declared: Value, chosen: object) -> bool:
    return type(declared) is type(chosen) and declared == chosen


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)
